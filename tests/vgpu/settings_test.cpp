// Tests settings that a program presets instead of changing its environment. They are read once per
// process, so the hidden cases run in separate processes.
#include "kernels/vgpu/settings.hpp"

#include <cuda_runtime.h>
#include <filesystem>

#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"

using vgpu::Settings;

// The next test case sets VGPU_SEED=9 VGPU_MEMORY_MB=32 VGPU_DEADLINE_MS= for this one.
TEST_CASE("presets settings", "[.][presets]") {
  CHECK(Settings::insist("VGPU_SEED", 4));
  CHECK(Settings::insist("VGPU_SEED", 5));
  CHECK(Settings::insist("VGPU_DEVICES", 3));
  CHECK(Settings::prefer("VGPU_MEMORY_MB", 64));
  CHECK(Settings::prefer("VGPU_DELAY_US", 7));
  CHECK(Settings::prefer("VGPU_DEADLINE_MS", 77));
  int devices = 0;
  CHECK(cudaGetDeviceCount(&devices) == cudaSuccess);
  CHECK(devices == 3);
  const Settings& s = Settings::get();
  CHECK(s.seed == 5);
  CHECK(s.memory_bytes == std::size_t{32} << 20);
  CHECK(s.delay_us == 7);
  CHECK(s.deadline_ms == 77);
  CHECK_FALSE(Settings::insist("VGPU_SEED", 6));
  CHECK_FALSE(Settings::prefer("VGPU_DELAY_US", 8));
  CHECK(Settings::get().seed == 5);
}

TEST_CASE("a program's presets: insist() overrules the environment, prefer() fills its gaps") {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto run = ringsmith::testing::run_program({"env", "-u", "VGPU_DELAY_US", "VGPU_SEED=9",
                                                    "VGPU_MEMORY_MB=32", "VGPU_DEADLINE_MS=", self,
                                                    "[presets]"});
  INFO(run.out << run.err);
  CHECK(run.exit_code == 0);
  CHECK_THAT(run.out, ContainsSubstring("in 1 test case"));
}

TEST_CASE("presets too many devices", "[.][presets_wrong]") {
  Settings::insist("VGPU_DEVICES", 65);
  (void)Settings::get();
}
TEST_CASE("a preset is checked as a variable is") {
  const auto run = ringsmith::testing::run_program(
      {std::filesystem::read_symlink("/proc/self/exe").string(), "[presets_wrong]"});
  CHECK(run.exit_code == 6);
  CHECK(run.err == "vgpu: VGPU_DEVICES=65: give a whole number from 1 to 64\n");
}
