#include "kernels/vgpu/settings.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>
#include <sstream>
#include <string_view>
#include <thread>
#include <unistd.h>

namespace vgpu {

namespace {

// The values that the program has preset, until the settings are read. Never destroyed, because the
// first CUDA call may be in a destructor.
struct Preset {
  std::string value;
  bool insists;
};
struct Presets {
  std::mutex mutex;
  std::map<std::string, Preset, std::less<>> of;
  bool read = false;
};
Presets& presets() {
  static auto* const made = new Presets;
  return *made;
}

bool preset(const char* variable, std::uint64_t value, bool insists) {
  Presets& all = presets();
  const std::scoped_lock lock(all.mutex);
  if (!all.read) all.of.insert_or_assign(variable, Preset{std::to_string(value), insists});
  return !all.read;
}

// Returns the value of a variable, or null. Must be called while the presets are locked.
const char* text_of(const char* name) {
  const char* const set = std::getenv(name);
  const auto found = presets().of.find(name);
  if (found == presets().of.end()) return set;
  const bool silent = set == nullptr || *set == '\0';
  return found->second.insists || silent ? found->second.value.c_str() : set;
}

std::uint64_t number(const char* name, std::uint64_t fallback, std::uint64_t least,
                     std::uint64_t most) {
  const char* text = text_of(name);
  if (text == nullptr || *text == '\0') return fallback;
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text, &end, 10);
  if (*end != '\0' || *text == '-' || value < least || value > most) {
    std::fprintf(stderr, "vgpu: %s=%s: give a whole number from %llu to %llu\n", name, text,
                 static_cast<unsigned long long>(least), static_cast<unsigned long long>(most));
    std::exit(6);
  }
  return value;
}

// Reads CUDA_VISIBLE_DEVICES as the driver does: all devices if it is not set, otherwise those
// listed before the first entry that is not the number of a device. Returns no devices if one is
// listed twice.
std::vector<int> read_devices() {
  const auto all = static_cast<int>(number("VGPU_DEVICES", 8, 1, 64));
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  std::vector<int> out;
  if (text == nullptr) {
    out.resize(static_cast<std::size_t>(all));
    std::iota(out.begin(), out.end(), 0);
    return out;
  }
  std::istringstream list(text);
  for (std::string entry; std::getline(list, entry, ',');) {
    int device = -1;
    const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), device);
    if (error != std::errc() || end != entry.data() + entry.size() || device < 0 || device >= all)
      break;
    if (std::find(out.begin(), out.end(), device) != out.end()) return {};
    out.push_back(device);
  }
  return out;
}

// The names are in the order of the enumeration. The first is the default.
template <class Choice>
Choice choice(const char* variable, const std::array<std::string_view, 3>& names) {
  const char* text = text_of(variable);
  const std::string_view name = text == nullptr || *text == '\0' ? names[0] : text;
  const auto* const found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    std::fprintf(stderr, "vgpu: %s=%s: give %s, %s or %s\n", variable, text, names[0].data(),
                 names[1].data(), names[2].data());
    std::exit(6);
  }
  return static_cast<Choice>(found - names.begin());
}

std::size_t read_guard_page() {
  const auto of_system = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) >> 10;
  const std::uint64_t page = number("VGPU_PAGE_KB", of_system, of_system, 64);
  if ((page & (page - 1)) != 0) {
    std::fprintf(stderr, "vgpu: VGPU_PAGE_KB=%llu: give a power of two\n",
                 static_cast<unsigned long long>(page));
    std::exit(6);
  }
  return page << 10;
}

Settings read() {
  const std::scoped_lock lock(presets().mutex);
  presets().read = true;
  Settings s{};
  s.devices = read_devices();
  s.seed = number("VGPU_SEED", 1, 0, UINT64_MAX);
  s.delay_us = number("VGPU_DELAY_US", 60, 0, 10'000'000);
  s.memory_bytes = number("VGPU_MEMORY_MB", 1024, 2, 1 << 20) << 20;
  s.deadline_ms = number("VGPU_DEADLINE_MS", 30'000, 1, 86'400'000);
  s.workers = static_cast<int>(
      number("VGPU_WORKERS", std::max(1U, std::thread::hardware_concurrency()), 1, 256));
  s.guard = choice<Guard>("VGPU_GUARD", {"keys", "pages", "none"});
  s.peers = choice<PeerAccess>("VGPU_PEERS", {"all", "none", "broken"});
  s.guard_page = read_guard_page();
  s.driver_waits = number("VGPU_DRIVER_WAITS", 0, 0, 1) != 0;
  s.protection_keys = number("VGPU_PROTECTION_KEYS", 1, 0, 1) != 0;
  s.libm_ulps = number("VGPU_LIBM_ULPS", 0, 0, 1 << 20);
  s.driver_error = static_cast<int>(number("VGPU_DRIVER_ERROR", 0, 0, 999));
  s.launch_blocking = number("VGPU_LAUNCH_BLOCKING", 0, 0, 1) != 0;
  s.resident = static_cast<int>(number("VGPU_RESIDENT", 0, 0, 1024));
  s.shared_bytes = number("VGPU_SHARED_KB", 227, 48, 227) << 10;
  s.legacy_stream = number("VGPU_LEGACY_STREAM", 0, 0, 1) != 0;
  s.counters = number("VGPU_COUNTERS", 0, 0, 1) != 0;
  const char* const loading = std::getenv("CUDA_MODULE_LOADING");
  s.eager_loading = loading != nullptr && std::string_view(loading) == "EAGER";
  return s;
}

}  // namespace

const Settings& Settings::get() {
  static const Settings settings = read();
  return settings;
}

bool Settings::insist(const char* variable, std::uint64_t value) {
  return preset(variable, value, true);
}
bool Settings::prefer(const char* variable, std::uint64_t value) {
  return preset(variable, value, false);
}

}  // namespace vgpu
