#include "labs/apps/common/files.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "runtime/base/atomic_file.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith::apps {

namespace fs = std::filesystem;

namespace {

constexpr std::array kFolders = {"kernels", "labs", "lessons", "runtime", "slides", "tests"};
constexpr std::array kKinds = {".cpp", ".cu", ".cuh", ".hpp", ".md"};

bool is_source_root(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_directory(folder / "runtime" / "base", ignored) &&
         fs::is_regular_file(folder / "CMakeLists.txt", ignored);
}

}  // namespace

void require_writable(const std::string& path) {
  if (!path.empty()) try_to_write(path, std::size_t{64} << 10);
}

void write_or_rescue(const std::string& path, const std::string& name,
                     const std::function<void(const std::string& path)>& write) {
  try {
    write(path);
  } catch (const Error& failed) {
    std::error_code ignored;
    const fs::path wanted(path);
    for (const fs::path& place : {fs::current_path(ignored), fs::temp_directory_path(ignored)}) {
      const std::string rescued =
          place / (wanted.stem().string() + "-" + random_name() + wanted.extension().string());
      try {
        write(rescued);
      } catch (const Error&) {
        continue;
      }
      throw Error(std::string(failed.what()) + "; " + name + " in '" + rescued + "'");
    }
    throw;
  }
}

void write_file(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  write_or_rescue(path, "its text is",
                  [&](const std::string& place) { write_atomically(place, text); });
}

std::string find_source_root() {
  if (is_source_root(RINGSMITH_SOURCE_DIR)) return RINGSMITH_SOURCE_DIR;
  std::error_code ignored;
  for (const fs::path& start :
       {fs::read_symlink("/proc/self/exe", ignored).parent_path(), fs::current_path(ignored)})
    for (fs::path folder = start; !folder.empty(); folder = folder.parent_path()) {
      if (is_source_root(folder)) return folder.string();
      if (folder == folder.parent_path()) break;
    }
  throw UsageError("ringsmith's sources, the default text, are neither at '" RINGSMITH_SOURCE_DIR
                   "' nor in a folder above this program; give a text with --data FILE");
}

std::vector<std::string> list_sources(const std::string& root) {
  // Sorts relative paths, so that the order does not depend on root.
  std::vector<std::string> paths;
  for (const char* folder : kFolders) {
    if (std::error_code ignored; !fs::is_directory(fs::path(root) / folder, ignored)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(root) / folder)) {
      const std::string kind = entry.path().extension().string();
      if (entry.is_regular_file() && std::ranges::find(kKinds, kind) != kKinds.end())
        paths.push_back(entry.path().lexically_relative(root).generic_string());
    }
  }
  if (fs::exists(fs::path(root) / "README.md")) paths.emplace_back("README.md");
  require(!paths.empty(), "no source files under '" + root + "'; give a text with --data FILE");
  std::ranges::sort(paths);
  for (std::string& path : paths) path = (fs::path(root) / path).string();
  return paths;
}

}  // namespace ringsmith::apps
