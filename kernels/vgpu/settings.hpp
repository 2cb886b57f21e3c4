// The emulator's settings, read once: from the environment, or from a program's presets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace vgpu {

// Whether device memory faults if it is accessed by the host, or by a device without peer access.
enum class Guard {
  keys,   // with memory protection keys, or no fault if the processor has none
  pages,  // as keys, but by slowly closing and opening pages if the processor has no keys
  none,
};

enum class PeerAccess {
  all,
  none,    // cudaDeviceCanAccessPeer returns 0
  broken,  // as all, but writes through an IPC handle never reach the exporter
};

struct Settings {
  // Each comment names the variable, its default in parentheses, and its meaning.
  //
  // CUDA_VISIBLE_DEVICES (all): numbers of the machine's virtual GPUs that this process sees, in
  // the order of its device numbers. VGPU_DEVICES (8), 1 to 64, is the machine's total.
  std::vector<int> devices;
  std::uint64_t seed;         // VGPU_SEED (1): order of threads and blocks, delays
  std::uint64_t delay_us;     // VGPU_DELAY_US (60): longest delay before a stream's operation
  std::size_t memory_bytes;   // VGPU_MEMORY_MB (1024): memory of each device
  std::uint64_t deadline_ms;  // VGPU_DEADLINE_MS (30000): limit of a kernel's time without progress
  int workers;                // VGPU_WORKERS (the cores): OS threads that share a large grid
  Guard guard;                // VGPU_GUARD (keys): keys, pages or none
  bool protection_keys;       // VGPU_PROTECTION_KEYS (1): 0 simulates a processor without keys
  PeerAccess peers;           // VGPU_PEERS (all): all, none or broken
  bool driver_waits;          // VGPU_DRIVER_WAITS (0): see Driver in device.hpp
  std::size_t guard_page;     // VGPU_PAGE_KB (the system's page): size of guards, at most 64 KiB
  std::uint64_t libm_ulps;    // VGPU_LIBM_ULPS (0): distance of kernels' exp() from the host's
  int driver_error;           // VGPU_DRIVER_ERROR (0): cudaGetDeviceCount's, in place of devices
  bool launch_blocking;       // VGPU_LAUNCH_BLOCKING (0): 1: a launch waits for its kernel's end
  int resident;               // VGPU_RESIDENT (0): blocks per multiprocessor; 0: no limit
  std::size_t shared_bytes;   // VGPU_SHARED_KB (227): shared memory that a block may ask for
  bool legacy_stream;         // VGPU_LEGACY_STREAM (0): 1 permits the legacy default stream
  bool counters;              // VGPU_COUNTERS (0): 1 prints counters.hpp's table at the end
  bool eager_loading;         // CUDA_MODULE_LOADING (LAZY): true if EAGER, as for the driver

  // Exits with a message if a variable has an invalid value.
  static const Settings& get();

  // Both set one of the numbers above, selected by the name of its variable. (setenv() would race
  // with threads that read the environment.) insist() overrides the environment. prefer() applies
  // if the environment has no value. They must be called before the first CUDA call. Once the
  // settings have been read, both do nothing and return false.
  static bool insist(const char* variable, std::uint64_t value);
  static bool prefer(const char* variable, std::uint64_t value);
};

// The generator splitmix64. Every purpose has its own stream of random numbers.
class Random {
 public:
  explicit Random(std::uint64_t stream)
      : state_(Settings::get().seed * 0x9e3779b97f4a7c15U + stream) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t n) { return next() % n; }

 private:
  std::uint64_t state_;
};

// Size of guards: the smallest piece of memory that can be made to fault, 4 KiB on x86 and 4, 16 or
// 64 KiB on arm64. VGPU_PAGE_KB simulates a larger one.

inline std::size_t guard_page() { return Settings::get().guard_page; }

}  // namespace vgpu
