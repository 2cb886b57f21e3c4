// The virtual GPUs of this process: memory, streams, peers. Made on first use, never destroyed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "kernels/vgpu/api/runtime.hpp"
#include "kernels/vgpu/arena.hpp"

namespace vgpu {

class Queue;

class Device {
 public:
  static int count();
  // The device with this number, which must exist.
  static Device& get(int index);
  // The calling thread's current device.
  static Device& current();
  static void set_current(int index);
  // Whose memory holds the address (living, freed or never given out); null if no device's.
  static Device* owner(const void* address);

  Device(int index, std::byte* base, std::size_t span);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] int index() const { return index_; }  // in this process
  [[nodiscard]] int number() const;                   // in the machine
  [[nodiscard]] int key() const { return key_; }      // rights.hpp
  Arena& memory() { return memory_; }
  [[nodiscard]] const Arena& memory() const { return memory_; }
  [[nodiscard]] cudaUUID_t uuid() const;

  // Keys of the memory that kernels and copies of this device may touch: its own and its peers'.
  [[nodiscard]] std::uint32_t keys() const { return keys_; }
  // False if it was so already.
  bool enable_peer(const Device& peer);

  void add(const std::shared_ptr<Queue>& stream);
  void remove(const std::shared_ptr<Queue>& stream);
  void synchronize();
  // The legacy default stream, made on first use; and the same if it was used.
  Queue& legacy();
  [[nodiscard]] std::shared_ptr<Queue> legacy_if_used();
  // Its streams that wait for the legacy one, and it for them.
  [[nodiscard]] std::vector<std::shared_ptr<Queue>> blocking_streams();

 private:
  const int index_;
  const int key_;
  Arena memory_;
  std::atomic<std::uint32_t> keys_;
  std::atomic<std::uint64_t> peers_{0};
  std::mutex mutex_;
  std::set<std::shared_ptr<Queue>> streams_;
  std::shared_ptr<Queue> legacy_;
};

}  // namespace vgpu
