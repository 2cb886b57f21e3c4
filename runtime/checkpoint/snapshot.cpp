#include "runtime/checkpoint/snapshot.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>

#include "runtime/base/atomic_file.hpp"
#include "runtime/base/error.hpp"
#include "runtime/checkpoint/sha256.hpp"

namespace ringsmith {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "ringsmith snapshot 1";
constexpr const char* kManifest = "manifest.json";
constexpr const char* kState = "state.json";
constexpr const char* kTensors = ".safetensors";
constexpr std::string_view kName = "step-";
constexpr std::int64_t kMostSteps = std::int64_t{1} << 53;

std::span<const std::byte> bytes_of_text(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string dump(const Json& json, const std::string& path) {
  try {
    return json.dump(1);
  } catch (const Json::exception&) {
    throw UsageError("cannot write '" + path + "': a name or a value is not UTF-8");
  }
}

// Appends the digest of the preceding text as the last entry. `open_object` is an object's text
// without the line break and the brace at its end.
std::string seal(const std::string& open_object) {
  const std::string text = open_object + ",\n";
  return text + " \"sha256\": \"" + sha256(bytes_of_text(text)) + "\"\n}\n";
}

struct FileFacts {
  std::uint64_t bytes = 0;
  std::string digest;
};

class Folder {
 public:
  explicit Folder(const std::string& path) : path_(path) {}

  [[noreturn]] void fail(const std::string& file, const std::string& fault) const {
    throw UsageError("checkpoint '" + path_ + "' cannot be used: " + file + " " + fault);
  }
  [[nodiscard]] std::string file(const std::string& name) const { return fs::path(path_) / name; }

  [[nodiscard]] std::string why_no_manifest() const {
    std::error_code ignored;
    if (!fs::is_directory(path_, ignored)) return "is missing: the folder does not exist";
    return fs::path(path_).filename().string().rfind(kName, 0) == 0
               ? "is missing: writing it was interrupted"
               : "is missing: the folder is not a checkpoint";
  }

  FileFacts examine(const std::string& name, std::string* keep = nullptr) const {
    if (const std::string kind = odd_kind(file(name)); !kind.empty()) fail(name, "is " + kind);
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> in(std::fopen(file(name).c_str(), "rb"),
                                                             &std::fclose);
    if (!in && errno == ENOENT && name == kManifest) fail(name, why_no_manifest());
    if (!in && errno == ENOENT) fail(name, "is missing");
    if (!in) fail(name, std::string("cannot be opened: ") + std::strerror(errno));
    FileFacts facts;
    Sha256 hash;
    std::vector<std::byte> piece(1 << 20);
    for (;;) {
      const std::size_t n = std::fread(piece.data(), 1, piece.size(), in.get());
      if (std::ferror(in.get()) != 0)
        fail(name, std::string("cannot be read: ") + std::strerror(errno));
      hash.update(std::span(piece).first(n));
      if (keep != nullptr) keep->append(reinterpret_cast<const char*>(piece.data()), n);
      facts.bytes += n;
      if (n < piece.size()) break;
    }
    facts.digest = hash.hex();
    return facts;
  }

  // Checks all files that the manifest names.
  [[nodiscard]] Json manifest() const {
    std::string text;
    (void)examine(kManifest, &text);
    const std::size_t end = text.rfind(",\n");
    if (end == std::string::npos || text != seal(text.substr(0, end)))
      fail(kManifest, "does not match the SHA-256 at its end");
    Json out = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!out.is_object() || out["format"] != Json(kFormat) || !out["step"].is_number_integer() ||
        !out["files"].is_object())
      fail(kManifest,
           fmt::format("is not in the format '{}': read it with the version that wrote it",
                       kFormat));
    if (out["step"] < 0 || out["step"] > kMostSteps || !out["files"].contains(kState))
      fail(kManifest, "has no valid step, or does not list " + std::string(kState));
    for (auto& [name, facts] : out["files"].items()) {
      if (fs::path(name).filename() != name || !facts.is_object())
        fail(kManifest, "lists an entry that is not a file of the checkpoint");
      const FileFacts found = examine(name);
      if (Json(found.bytes) != facts["bytes"])
        fail(name,
             fmt::format("has {} bytes, the manifest says {}", found.bytes, facts["bytes"].dump()));
      if (Json(found.digest) != facts["sha256"])
        fail(name, "does not match its SHA-256 in the manifest");
    }
    return out;
  }

 private:
  std::string path_;
};

void write_files(const Folder& folder, const Snapshot& snapshot) {
  Json files = Json::object();
  const auto note = [&](const std::string& name) {
    FileFacts facts;
    try {
      facts = folder.examine(name);
    } catch (const UsageError&) {  // the folder was moved away after the file was written
      cannot_write(folder.file(name), ENOENT);
    }
    files[name] = {{"bytes", facts.bytes}, {"sha256", facts.digest}};
  };
  for (const auto& [name, tensors] : snapshot.tensors) {
    require(fs::path(name).filename() == name && !name.empty(),
            "a checkpoint cannot have a file named '" + name + "'");
    save_safetensors(folder.file(name + kTensors), tensors);
    note(name + kTensors);
  }
  write_atomically(folder.file(kState), dump(Json(snapshot.values), folder.file(kState)) + "\n");
  note(kState);
  const Json manifest = {{"format", kFormat}, {"step", snapshot.step}, {"files", files}};
  const std::string text = dump(manifest, folder.file(kManifest));
  write_atomically(folder.file(kManifest), seal(text.substr(0, text.size() - 2)));
}

// Moves the folder `written` to `path`, replacing the folder there. If the file system can exchange
// names, a crash leaves a complete folder at `path`.
void replace(const std::string& path, const std::string& written) {
  if (renameat2(AT_FDCWD, written.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) {
    sync_folder(fs::path(path).parent_path(), path);
    return remove_snapshot(written);
  }
  remove_snapshot(path);
  if (std::rename(written.c_str(), path.c_str()) != 0) cannot_write(path, errno);
  sync_folder(fs::path(path).parent_path(), path);
}

}  // namespace

void write_snapshot(const std::string& path, const Snapshot& snapshot) {
  const bool replaces = has_manifest(path);
  const std::string written = replaces ? path + ".new" : path;
  remove_snapshot(written);
  std::error_code error;
  fs::create_directory(written, error);
  if (error) cannot_write(written, error.value());
  try {
    sync_folder(fs::path(path).parent_path(), path);
    write_files(Folder(written), snapshot);
  } catch (...) {
    remove_snapshot(written);  // unusable files would waste space on a full disk
    throw;
  }
  if (replaces) replace(path, written);  // if this fails, the complete folder remains
}

Snapshot read_snapshot(const std::string& path) {
  const Folder folder(path);
  const Json manifest = folder.manifest();
  Snapshot out;
  out.step = manifest["step"].get<std::int64_t>();
  for (const auto& [file, facts] : manifest["files"].items()) {
    const fs::path name(file);
    if (name.extension() == kTensors)
      out.tensors[name.stem()] = load_safetensors(folder.file(file)).tensors;
  }
  std::string text;
  (void)folder.examine(kState, &text);
  const Json values = Json::parse(text, nullptr, false);
  if (!values.is_object()) folder.fail(kState, "is not a JSON object");
  for (const auto& [name, value] : values.items()) {
    if (!value.is_string()) folder.fail(kState, "'" + name + "' is not a string");
    out.values[name] = value.get<std::string>();
  }
  return out;
}

std::string snapshot_name(std::int64_t step) { return fmt::format("{}{:06}", kName, step); }

std::vector<std::pair<std::int64_t, std::string>> list_snapshots(const std::string& folder) {
  std::vector<std::pair<std::int64_t, std::string>> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (name.rfind(kName, 0) != 0) continue;
    std::int64_t step = -1;
    const char* const end = name.data() + name.size();
    const auto [stop, bad] = std::from_chars(name.data() + kName.size(), end, step);
    if (bad == std::errc() && stop == end && name == snapshot_name(step))
      out.emplace_back(step, entry.path());
  }
  std::ranges::sort(out);
  return out;
}

std::optional<Snapshot> newest_snapshot(
    const std::string& folder,
    const std::function<void(const std::string& path, const std::string& why)>& skipped,
    const std::function<void(const Snapshot&)>& examine) {
  for (auto all = list_snapshots(folder); !all.empty(); all.pop_back()) try {
      Snapshot snapshot = read_snapshot(all.back().second);
      examine(snapshot);
      return snapshot;
    } catch (const UsageError& e) {
      skipped(all.back().second, e.what());
    }
  return std::nullopt;
}

bool has_manifest(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(fs::path(path) / kManifest, ignored);  // opening a FIFO would block
}

void remove_snapshot(const std::string& path) noexcept {
  try {
    std::error_code ignored;
    const fs::file_type type = fs::symlink_status(path, ignored).type();
    if (type == fs::file_type::directory) {
      fs::remove(fs::path(path) / kManifest, ignored);
      fs::remove_all(path, ignored);
    } else if (type == fs::file_type::symlink) {
      fs::remove(path, ignored);     // its target is not ours to remove
    }                                // anything else is not a checkpoint and remains
  } catch (const std::exception&) {  // out of memory for a path; the folder remains
    return;
  }
}

}  // namespace ringsmith
