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

// Unless the user has set it, sets an environment variable that the driver reads at its first call.
// Ranks that share a process launch kernels that wait for each other. By default, such a kernel may
// share a hardware queue with kernels that wait for it, and the ranks would deadlock.
//
// The driver reads the variable only from the environment, and setenv() may move the environment
// while another thread reads it. Therefore this function runs before main() and before all other
// constructors (101 is the first priority that programs may use). In a shared library loaded by a
// program that already has threads, the environment is left alone: the program must set the
// variable.
__attribute__((constructor(101))) void prepare_driver() {
  if (!is_in_program() && __libc_single_threaded == 0) return;
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);  // hardware queues; default: 8
}

struct Found {
  int devices = 0;
  std::string why_none;  // if devices is 0
};
const Found& found() {
  static const Found made = [] {
    Found f;
    const cudaError_t code = cudaGetDeviceCount(&f.devices);
    if (code == cudaSuccess && f.devices > 0) return f;
    f.devices = 0;
    (void)cudaGetLastError();
    int driver = 0, runtime = 0;
    if (code == cudaErrorInsufficientDriver) {
      (void)cudaDriverGetVersion(&driver);
      (void)cudaRuntimeGetVersion(&runtime);
    }
    f.why_none =
        explain_no_devices(code == cudaSuccess ? cudaErrorNoDevice : code, driver, runtime);
    return f;
  }();
  return made;
}

}  // namespace

std::string explain_no_devices(int code, int driver, int runtime) {
  const auto version = [](int v) {
    return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10);
  };
  switch (code) {
    case cudaErrorNoDevice:
      return "no CUDA device was found";
    case cudaErrorInsufficientDriver:  // also if there is no driver
      if (driver == 0) return "no NVIDIA driver was found";
      return "the NVIDIA driver is too old: it supports CUDA " + version(driver) +
             ", and this program was built with CUDA " + version(runtime) +
             " (update the driver, or build with an older toolkit)";
    case cudaErrorSystemNotReady:
      return "the NVIDIA driver is not ready: devices joined by NVSwitch need the fabric manager "
             "(systemctl start nvidia-fabricmanager)";
    case cudaErrorSystemDriverMismatch:
      return "the NVIDIA kernel module and libcuda.so have different versions (reboot after an "
             "update of the driver; do not install a driver in a container)";
    case cudaErrorDevicesUnavailable:
      return "the CUDA devices are busy or unavailable (in exclusive mode, a device serves one "
             "process: nvidia-smi -q -d COMPUTE)";
    default:
      return cudaGetErrorString(static_cast<cudaError_t>(code));
  }
}

int device_count() { return found().devices; }
const std::string& why_no_devices() { return found().why_none; }

void require_device(Device device) {
  if (device.is_cpu() || (device.index >= 0 && device.index < device_count())) return;
  const int n = device_count();
  throw UsageError("there is no device " + device.str() + ": " +
                   (n == 0   ? why_no_devices() + "; use cpu"
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
