#include "runtime/device/device.hpp"

#include <charconv>
#include <cstdlib>
#include <dlfcn.h>
#include <sys/auxv.h>
#include <sys/single_threaded.h>

#include "runtime/device/cuda_check.hpp"

namespace ringsmith {

namespace {

bool is_in_program() {
  Dl_info program{}, here{};
  // The kernel tells each process the address of its program headers.
  const auto* const headers = reinterpret_cast<const void*>(getauxval(AT_PHDR));
  return dladdr(headers, &program) != 0 &&
         dladdr(reinterpret_cast<const void*>(&is_in_program), &here) != 0 &&
         program.dli_fbase == here.dli_fbase;
}

// Unless the user has set them, sets two environment variables that the driver reads at its first
// call. Ranks that share a process launch kernels that wait for each other. By default, the launch
// of such a kernel may itself wait for running kernels (if the kernel is not loaded yet, or shares
// a hardware queue with them), and the ranks would deadlock.
//
// The driver reads both variables only from the environment, and setenv() may move the environment
// while another thread reads it. Therefore this function runs before main() and before all other
// constructors (101 is the first priority that programs may use). In a shared library loaded by a
// program that already has threads, the environment is left alone: the program must set both
// variables.
__attribute__((constructor(101))) void prepare_driver() {
  if (!is_in_program() && __libc_single_threaded == 0) return;
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);       // default: LAZY
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);  // hardware queues; default: 8
}

// The reason why there are no devices, as part of a sentence.
std::string& why_none() {
  static std::string why = "no CUDA device was found";
  return why;
}

}  // namespace

int device_count() {
  static const int count = [] {
    int n = 0;
    const cudaError_t code = cudaGetDeviceCount(&n);
    if (code != cudaSuccess) (void)cudaGetLastError();  // no driver, or an incompatible driver
    if (code != cudaSuccess && code != cudaErrorNoDevice) why_none() = cudaGetErrorString(code);
    return code == cudaSuccess ? n : 0;
  }();
  return count;
}

void require_device(Device device) {
  if (device.is_cpu() || (device.index >= 0 && device.index < device_count())) return;
  const int n = device_count();
  throw UsageError("there is no device " + device.str() + ": " +
                   (n == 0   ? why_none() + ", use cpu"
                    : n == 1 ? std::string("the only one is cuda:0")
                             : "there are cuda:0 to cuda:" + std::to_string(n - 1)));
}

Device parse_device(std::string_view name) {
  constexpr std::string_view kPrefix = "cuda:";
  Device device;
  if (name == "cpu") return device;
  device.kind = Device::Kind::cuda;
  if (name != "cuda") {
    const std::string_view digits =
        name.substr(0, kPrefix.size()) == kPrefix ? name.substr(kPrefix.size()) : "";
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, device.index);
    if (digits.empty() || digits.front() == '-' || stop != end || error != std::errc())
      throw UsageError("unknown device '" + std::string(name) + "': use cpu, cuda or cuda:NUMBER");
  }
  require_device(device);
  return device;
}

Device current_device() {
  int index = 0;
  cuda_check(cudaGetDevice(&index));
  return Device::cuda(index);
}

DeviceGuard::DeviceGuard(Device device) {
  if (device.is_cpu()) return;
  int before = 0;
  cuda_check(cudaGetDevice(&before));
  if (before == device.index) return;
  require_device(device);
  cuda_check(cudaSetDevice(device.index));
  previous_ = before;
}

DeviceGuard::~DeviceGuard() {
  // Cannot fail, because this device was current before.
  if (previous_ >= 0) (void)cudaSetDevice(previous_);
}

}  // namespace ringsmith
