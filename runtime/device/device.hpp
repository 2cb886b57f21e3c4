// The location of a tensor: "cpu" or "cuda:0".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ringsmith {

struct Device {
  enum class Kind : std::uint8_t { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = 0;

  static Device cpu() { return {}; }
  static Device cuda(int i) { return {Kind::cuda, i}; }
  [[nodiscard]] bool is_cpu() const { return kind == Kind::cpu; }
  [[nodiscard]] bool is_cuda() const { return kind == Kind::cuda; }
  [[nodiscard]] std::string str() const {
    return is_cpu() ? "cpu" : "cuda:" + std::to_string(index);
  }
  bool operator==(const Device&) const = default;
};

// Parses "cpu", "cuda" (device 0) or "cuda:2". Throws a UsageError that lists the valid choices.
[[nodiscard]] Device parse_device(std::string_view name);

// Returns the number of CUDA devices that this process sees, 0 without a driver.
[[nodiscard]] int device_count();
// Returns the reason why there are none, as part of a sentence: "no CUDA device was found".
[[nodiscard]] const std::string& why_no_devices();
// Returns the reason for an error code of cudaGetDeviceCount. The versions are CUDA's: 12040 for
// 12.4. `driver` is 0 if there is no driver.
[[nodiscard]] std::string explain_no_devices(int code, int driver, int runtime);
// Throws UsageError unless the device exists.
void require_device(Device device);

// Makes a device the calling thread's current one until the end of the scope. No-op for the CPU.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = -1;  // -1: nothing to restore
};

// Returns the calling thread's current CUDA device.
[[nodiscard]] Device current_device();

}  // namespace ringsmith
