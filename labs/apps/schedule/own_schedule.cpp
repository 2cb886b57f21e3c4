#include "labs/apps/schedule/own_schedule.hpp"

#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/analysis/checker.hpp"
#include "runtime/base/atomic_file.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/schedule/own.hpp"

namespace ringsmith::apps {

namespace {

std::string text_from_object(const std::string& path, int world) {
  // dlopen() would search for a bare name elsewhere, so the path must contain a slash.
  const std::string file = std::filesystem::absolute(path).string();
  void* const object = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);  // kept open for later calls
  if (object == nullptr) throw UsageError("--schedule " + path + ": " + dlerror());
  auto* const ring = reinterpret_cast<OwnRingFunction*>(dlsym(object, kOwnRingFunction));
  if (ring == nullptr)
    throw UsageError("--schedule " + path + " has no function " + kOwnRingFunction +
                     "; make own-ring compiles lab 06's ring to a file that has it");
  const std::string text = ring(world);
  if (text.starts_with('!')) throw UsageError("--schedule " + path + ": " + text.substr(1));
  return text;
}

std::string text_of(const std::string& path, int world) {
  namespace fs = std::filesystem;
  if (fs::is_directory(path)) {
    const std::string object = (fs::path(path) / "ring.so").string();
    if (!fs::exists(object))
      throw UsageError("--schedule " + path +
                       ": there is no ring.so in it; make own-ring compiles "
                       "your ring of lab 06");
    return text_from_object(object, world);
  }
  if (fs::path(path).extension() == ".so") return text_from_object(path, world);
  if (const std::string kind = odd_kind(path); !kind.empty())
    throw UsageError("--schedule " + path + " is " + kind + ": give a file");
  std::ifstream file(path);
  if (!file) throw UsageError("--schedule " + path + ": cannot be read");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

comm::Schedule parsed(const std::string& path, const std::string& text) try {
  // The count only determines the lengths of the chunks. With this count, no chunk is empty.
  const comm::Schedule shape = comm::parse_schedule(text, 0);
  return comm::parse_schedule(text, 3 * shape.chunks.size() + 1);
} catch (const UsageError& e) {
  throw UsageError("--schedule " + path + ": " + e.what());
}

comm::Schedule own_schedule(const std::string& path, const std::string& text, int world) {
  comm::Schedule own = parsed(path, text);
  require(own.world == world, "--schedule " + path + " is for " + std::to_string(own.world) +
                                  " ranks, but this job has " + std::to_string(world));
  const auto findings = comm::check(own);
  if (!findings.empty())
    throw UsageError("--schedule " + path + " is wrong: " + findings.front().describe());
  return own;
}

}  // namespace

std::string use_schedule_of(const std::string& path, int world) {
  std::string text = text_of(path, world);
  comm::use_as_ring(own_schedule(path, text, world));
  return text;
}

}  // namespace ringsmith::apps
