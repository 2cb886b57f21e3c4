// The buffers of a measurement, on the host or on the group's device, and how the host looks at
// them.
#pragma once

#include <memory>
#include <vector>

#include "runtime/comm/process_group.hpp"

namespace ringsmith::apps {

// Two blocks of memory, of the kind asked for, each with guard words on both sides.
class PerfMemory {
 public:
  PerfMemory(comm::ProcessGroup& group, bool own, std::size_t bytes, bool two);
  [[nodiscard]] std::byte* first() const { return first_ + kGuard; }
  [[nodiscard]] std::byte* second() const { return second_ + kGuard; }
  static constexpr std::size_t kGuard = 64;  // bytes

 private:
  std::byte* make(comm::ProcessGroup& group, bool own, std::size_t bytes);
  std::vector<std::shared_ptr<void>> keep_;
  std::byte *first_ = nullptr, *second_ = nullptr;
};

// A buffer with its guards as the host can touch it: the memory itself, or a copy of what is on the
// device.
class HostView {
 public:
  HostView(comm::Buffer data, Device device);
  [[nodiscard]] comm::Buffer data() { return view_; }
  void fetch();  // from the device, after what its current stream holds
  void store();  // to the device

 private:
  comm::Buffer data_, view_;
  Device device_;
  std::vector<std::byte> copy_;
};

void set_guards(comm::Buffer data);
[[nodiscard]] std::size_t broken_guards(
    comm::Buffer data);  // bytes of the guards that have changed

// Zeros in the buffer itself, wherever it is.
void clear(comm::Buffer data, Device device);
// Waits for everything that has been asked of the device; nothing for the CPU.
void wait_for_device(Device device);

}  // namespace ringsmith::apps
