#include "labs/apps/common/output_file.hpp"

#include <filesystem>
#include <fstream>
#include <unistd.h>

#include "runtime/base/error.hpp"

namespace ringsmith::apps {

namespace {

void require_written(bool well, const std::string& path) {
  require(well, "cannot write '" + path + "': does its folder exist, is it writable?");
}

}  // namespace

void require_writable(const std::string& path) {
  if (path.empty()) return;
  const std::filesystem::path file = path;
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  const bool there = std::filesystem::exists(file);
  const bool right_kind =
      there ? !std::filesystem::is_directory(file) : std::filesystem::is_directory(folder);
  require_written(right_kind && access((there ? file : folder).c_str(), W_OK) == 0, path);
}

void write_file(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  std::ofstream file(path);
  require_written(file.good(), path);
  file << text;
  file.flush();
  if (!file.good()) throw Error("cannot write '" + path + "' to its end: is the disk full?");
}

}  // namespace ringsmith::apps
