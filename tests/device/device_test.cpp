#include "runtime/device/device.hpp"

#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "runtime/base/error.hpp"
#include "tests/support/catch.hpp"

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
// These variables are read before any test and before the first use of a device.
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

// Also run with CUDA_MODULE_LOADING set (device_without_keys in tests/CMakeLists.txt).
TEST_CASE("what the driver reads is set before main(), and a value of the user's stays") {
  REQUIRE(device_count() >= 1);
  const std::string loading = value_at_start("CUDA_MODULE_LOADING"),
                    connections = value_at_start("CUDA_DEVICE_MAX_CONNECTIONS");
  CHECK(kLoading == (loading.empty() ? "EAGER" : loading));
  CHECK(kConnections == (connections.empty() ? "32" : connections));
  CHECK(value_of("CUDA_MODULE_LOADING") == kLoading);
  CHECK(value_of("CUDA_DEVICE_MAX_CONNECTIONS") == kConnections);
}

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
