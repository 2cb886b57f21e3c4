#include "labs/apps/train/run_files.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/chrono.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <unistd.h>

#include "labs/apps/common/files.hpp"
#include "runtime/base/atomic_file.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/process.hpp"

namespace ringsmith::apps {

namespace fs = std::filesystem;

namespace {

constexpr const char* kRemedy = "; choose a writable place with --run-dir";

[[noreturn]] void refuse(const fs::path& path, const std::string& why) {
  throw UsageError("cannot create run directory '" + path.string() + "': " + why + kRemedy);
}

// Creates the folder and its parents. Returns false if the path exists.
bool make(const fs::path& path) {
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  if (error) refuse(path, error.message());
  const bool made = fs::create_directory(path, error);
  if (error) refuse(path, error.message());
  return made;
}

void check_writable(const fs::path& path) {
  if (access(path.c_str(), W_OK | X_OK) != 0) refuse(path, std::strerror(errno));
}

// True if the folder is empty, apart from a checkpoint folder left by a run that failed to start.
bool is_unused(const fs::path& path) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    if (entry.path().filename() != kCheckpoints) return false;
    for (const auto& inner : fs::directory_iterator(entry, error))
      if (inner.path().filename() != "lock") return false;
  }
  return !error;
}

}  // namespace

bool holds_checkpoints(const std::string& folder) {
  std::error_code error;
  return fs::is_directory(fs::path(folder) / kCheckpoints, error);
}

std::string reopen_run_dir(const std::string& wanted) {
  std::error_code error;
  if (!fs::is_directory(wanted, error) || is_unused(wanted)) return create_run_dir(wanted);
  require(holds_checkpoints(wanted),
          "run directory '" + wanted +
              "' holds other files, but no checkpoints: --resume auto continues a run that was "
              "started with --save-every; choose another --run-dir");
  check_writable(wanted);
  return wanted;
}

bool share_run_dir(const std::string& wanted) {
  const fs::path path(wanted);
  const bool made = make(path);
  std::error_code error;
  if (!made && !fs::is_directory(path, error)) refuse(path, "a file with that name exists");
  check_writable(path);
  return made;
}

std::string create_run_dir(const std::string& wanted) {
  if (!wanted.empty()) {
    const fs::path path(wanted);
    if (!share_run_dir(wanted) && !is_unused(path))
      throw UsageError("run directory '" + wanted +
                       "' is not empty; nothing is overwritten: choose another with --run-dir" +
                       (holds_checkpoints(path) ? ", or continue its run with --resume auto" : ""));
    return path.string();
  }
  const fs::path base =
      fs::path("runs") / fmt::format("{:%Y%m%d-%H%M%S}", fmt::localtime(std::time(nullptr)));
  fs::path path = base;
  for (int n = 2; !make(path); ++n) path = base.string() + "-" + std::to_string(n);
  check_writable(path);
  return path.string();
}

namespace {

std::string model_file(const std::string& folder) { return folder + "/model.safetensors"; }

}  // namespace

void require_room_for_model(const std::string& folder, const StateDict& model) {
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : model) bytes += size_in_bytes(tensor).value;
  try_to_write(model_file(folder), bytes);
}

void save_model(const std::string& folder, const StateDict& model, const Metadata& metadata) {
  write_or_rescue(model_file(folder), "the trained model is",
                  [&](const std::string& place) { save_safetensors(place, model, metadata); });
}

JsonLines::JsonLines(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "wx")) {
  require(file_ != nullptr, "cannot create '" + path + "': " + std::strerror(errno) +
                                "; choose another run directory with --run-dir");
}

JsonLines::JsonLines(const std::string& path, std::int64_t step) : path_(path) {
  AtomicFile file(path);  // first: rejects a path that is not a file, which cannot be read either
  std::ifstream before(path);
  std::string kept;
  for (std::string line; std::getline(before, line);) {
    const auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto at = object.is_object() ? object.find("step") : object.end();
    if (at != object.end() && at->is_number_integer() &&
        at->get<double>() <= static_cast<double>(step))
      kept += line + "\n";
  }
  file.write(std::as_bytes(std::span(kept)));
  file.commit();
  file_.reset(std::fopen(path.c_str(), "a"));
  require(file_ != nullptr, "cannot write '" + path + "': " + std::strerror(errno));
}

void JsonLines::write(const nlohmann::ordered_json& object) {
  const std::string line = object.dump() + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() ||
      std::fflush(file_.get()) != 0)
    throw Error("cannot write '" + path_ + "': " + reason_of(errno));
}

}  // namespace ringsmith::apps
