#include "runtime/device/device.hpp"

#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "runtime/base/error.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"

using namespace ringsmith;

namespace {

std::string value_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}
// Returns the value that the variable `name` had when the process started.
std::string value_at_start(const std::string& name) {
  std::ifstream all("/proc/self/environ");
  for (std::string entry; std::getline(all, entry, '\0');)
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  return "";
}
// Read before any test and before the first use of a device.
const std::string kLoading = value_of("CUDA_MODULE_LOADING"),
                  kConnections = value_of("CUDA_DEVICE_MAX_CONNECTIONS");

}  // namespace

TEST_CASE("devices are named as in PyTorch, and those that do not exist are refused") {
  REQUIRE(device_count() >= 1);
  CHECK(parse_device("cpu") == Device::cpu());
  CHECK(parse_device("cuda") == Device::cuda(0));
  CHECK(parse_device("cuda:0") == Device::cuda(0));
  CHECK(parse_device("cuda:0").str() == "cuda:0");
  for (const char* bad : {"", "gpu", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda1", "CPU"})
    CHECK_THROWS_WITH(parse_device(bad), ContainsSubstring("use cpu, cuda or cuda:NUMBER"));
  CHECK_THROWS_WITH(parse_device("cuda:999"), ContainsSubstring("there is no device cuda:999"));
  CHECK_THROWS_AS(DeviceGuard(Device::cuda(999)), UsageError);
}

// Also run with CUDA_DEVICE_MAX_CONNECTIONS set (device_without_keys in tests/CMakeLists.txt).
// CUDA_MODULE_LOADING stays the user's: EAGER would load all kernels of all libraries.
TEST_CASE("what the driver reads is set before main(), and a value of the user's stays") {
  REQUIRE(device_count() >= 1);
  const std::string loading = value_at_start("CUDA_MODULE_LOADING"),
                    connections = value_at_start("CUDA_DEVICE_MAX_CONNECTIONS");
  CHECK(kLoading == loading);
  CHECK(kConnections == (connections.empty() ? "32" : connections));
  CHECK(value_of("CUDA_MODULE_LOADING") == kLoading);
  CHECK(value_of("CUDA_DEVICE_MAX_CONNECTIONS") == kConnections);
}

TEST_CASE("each reason why there are no devices has its own sentence") {
  const auto explain = explain_no_devices;
  CHECK(explain(cudaErrorNoDevice, 13000, 13000) == "no CUDA device was found");
  CHECK(explain(cudaErrorInsufficientDriver, 0, 13000) == "no NVIDIA driver was found");
  CHECK_THAT(explain(cudaErrorInsufficientDriver, 12080, 13000),
             ContainsSubstring("too old: it supports CUDA 12.8") &&
                 ContainsSubstring("built with CUDA 13.0 "));
  CHECK_THAT(explain(cudaErrorSystemNotReady, 0, 0), ContainsSubstring("nvidia-fabricmanager"));
  CHECK_THAT(explain(cudaErrorSystemDriverMismatch, 0, 0), ContainsSubstring("different versions"));
  CHECK_THAT(explain(cudaErrorDevicesUnavailable, 0, 0), ContainsSubstring("exclusive"));
  CHECK(explain(cudaErrorNotSupported, 0, 0) == cudaGetErrorString(cudaErrorNotSupported));
}

#ifdef RINGSMITH_VGPU
TEST_CASE("no device", "[.][no_device]") {
  try {
    require_device(Device::cuda(0));
  } catch (const UsageError& error) {
    std::puts(error.what());  // Catch would break the line
  }
}

TEST_CASE("a driver that does not start is not called a missing device") {
  const auto refusal = [](const std::string& variable) {
    const auto run = testing::run_program(
        {"env", variable, std::filesystem::read_symlink("/proc/self/exe").string(), "[no_device]"});
    return run.out;
  };
  CHECK_THAT(refusal("VGPU_DRIVER_ERROR=35"),
             ContainsSubstring("there is no device cuda:0: the NVIDIA driver is too old: it "
                               "supports CUDA 11.4, and") &&
                 ContainsSubstring("built with CUDA 12.0"));
  CHECK_THAT(refusal("VGPU_DRIVER_ERROR=802"), ContainsSubstring("nvidia-fabricmanager"));
  CHECK_THAT(refusal("VGPU_DRIVER_ERROR=803"), ContainsSubstring("different versions"));
  for (const char* none : {"VGPU_DRIVER_ERROR=100", "CUDA_VISIBLE_DEVICES="})
    CHECK_THAT(refusal(none), ContainsSubstring("no CUDA device was found; use cpu"));
}
#endif

TEST_CASE("a guard makes its device current in this thread, and gives the one before back") {
  if (device_count() < 2) return;
  const Device before = current_device();
  {
    const DeviceGuard outer(Device::cuda(1));
    CHECK(current_device() == Device::cuda(1));
    {
      const DeviceGuard none(Device::cpu());
      CHECK(current_device() == Device::cuda(1));
      const DeviceGuard inner(Device::cuda(0));
      CHECK(current_device() == Device::cuda(0));
    }
    CHECK(current_device() == Device::cuda(1));
    Device other = Device::cpu();
    std::thread([&] { other = current_device(); }).join();
    CHECK(other == Device::cuda(0));
  }
  CHECK(current_device() == before);
}
