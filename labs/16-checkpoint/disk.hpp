// A disk that loses unsynced changes in a power cut, as real disks do.
//
//                           file's bytes            folder's names
//   visible immediately     append                  create, rename, remove
//   durable                 sync(path)              sync_folder(folder)
//
// A power cut between the change and its sync may leave anything: the whole change, a part of it,
// or nothing; the name without the bytes, the bytes without the name, or zeros instead of the
// bytes. Changes to different names reach the disk in any order. (Pillai et al., All File Systems
// Are Not Created Equal, 2014, found every one of these on file systems in real use.)
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lab16 {

using Bytes = std::vector<std::byte>;

// 64-bit FNV-1a. Inputs that differ in only one byte always have different digests, other inputs
// almost always.
inline std::uint64_t digest(std::span<const std::byte> bytes) {
  std::uint64_t hash = 14695981039346656037U;
  for (const std::byte b : bytes) hash = (hash ^ static_cast<std::uint64_t>(b)) * 1099511628211U;
  return hash;
}

struct PowerCut {};  // ends the simulated program: do not catch it
struct DiskFull : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct NoSuchFile : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Disk {
 public:
  // Creates an empty file. An older file of this name is unlinked.
  void create(const std::string& path) {
    operation();
    names_[path] = std::make_shared<File>();
    pending_.push_back({"", path, names_[path]});
  }
  // Throws DiskFull if there is no room; part of the bytes may have been appended.
  void append(const std::string& path, std::span<const std::byte> bytes) {
    operation();
    File& file = *find(path);
    const std::size_t fits = std::min(bytes.size(), capacity_ - std::min(capacity_, size()));
    file.bytes.insert(file.bytes.end(), bytes.begin(), bytes.begin() + std::ptrdiff_t(fits));
    if (fits < bytes.size()) throw DiskFull("no space left for '" + path + "'");
  }
  // Makes the file's current bytes durable, but not its name.
  void sync(const std::string& path) {
    operation();
    File& file = *find(path);
    file.kept = file.bytes;
  }
  // Atomic: a reader sees either the old file under `to` or the new one.
  void rename(const std::string& from, const std::string& to) {
    operation();
    const std::shared_ptr<File> file = find(from);
    names_.erase(from);
    names_[to] = file;
    pending_.push_back({from, to, file});
  }
  void remove(const std::string& path) {
    operation();
    (void)find(path);
    names_.erase(path);
    pending_.push_back({path, "", nullptr});
  }
  // Makes the folder's current names durable.
  void sync_folder(const std::string& folder) {
    operation();
    std::vector<Change> left;
    for (const Change& change : pending_)
      if (!is_in(change.from, folder) && !is_in(change.to, folder))
        left.push_back(change);
      else
        apply(change, kept_names_);
    pending_ = left;
  }
  [[nodiscard]] Bytes read(const std::string& path) const { return find(path)->bytes; }
  // Returns "a" and "b" for the files folder/a and folder/b, in no particular order.
  [[nodiscard]] std::vector<std::string> list(const std::string& folder) const {
    std::vector<std::string> found;
    for (const auto& [path, file] : names_)
      if (is_in(path, folder)) found.push_back(path.substr(folder.size() + 1));
    std::shuffle(found.begin(), found.end(), std::mt19937(unsigned(operations_) + 7));
    return found;
  }

  // From here on: for drivers only.
  enum class After { nothing, names, torn, data, everything, zeros, random };
  void cut_power_at(std::int64_t operation) { cut_at_ = operation; }
  void set_capacity(std::size_t bytes) { capacity_ = bytes; }
  [[nodiscard]] std::int64_t operations() const { return operations_; }
  [[nodiscard]] std::size_t files() const { return names_.size(); }  // in all folders
  // Returns the disk after the power cut, in one of its possible states.
  [[nodiscard]] Disk reboot(After after, std::uint64_t seed) const;
  // Changes a file outside of the program, durably and without counting an operation.
  void overwrite(const std::string& path, const Bytes& bytes) {
    names_[path] = kept_names_[path] = std::make_shared<File>(File{bytes, bytes});
  }

 private:
  struct File {
    Bytes bytes, kept;
  };
  struct Change {
    std::string from, to;  // empty `from`: create; empty `to`: remove
    std::shared_ptr<File> file;
  };
  using Names = std::map<std::string, std::shared_ptr<File>>;

  static bool is_in(const std::string& path, const std::string& folder) {
    return path.size() > folder.size() + 1 && path.starts_with(folder + "/") &&
           path.find('/', folder.size() + 1) == std::string::npos;
  }
  static void apply(const Change& change, Names& names) {
    if (!change.from.empty()) names.erase(change.from);
    if (!change.to.empty()) names[change.to] = change.file;
  }
  void operation() {
    if (operations_ >= cut_at_) throw PowerCut{};
    ++operations_;
  }
  [[nodiscard]] std::shared_ptr<File> find(const std::string& path) const {
    const auto found = names_.find(path);
    if (found == names_.end()) throw NoSuchFile("there is no '" + path + "'");
    return found->second;
  }
  [[nodiscard]] std::size_t size() const {
    std::size_t all = 0;
    for (const auto& [path, file] : names_) all += file->bytes.size();
    return all;
  }

  Names names_, kept_names_;
  std::vector<Change> pending_;  // changes of names, in order, not yet durable
  std::int64_t operations_ = 0, cut_at_ = INT64_MAX;
  std::size_t capacity_ = SIZE_MAX;
};

inline Disk Disk::reboot(After after, std::uint64_t seed) const {
  std::mt19937_64 draw(seed);
  Names names = kept_names_;
  std::vector<std::string> stuck;  // names with an earlier change that has not reached the disk
  for (const Change& change : pending_) {
    const auto waits = [&](const std::string& name) {
      return !name.empty() && std::find(stuck.begin(), stuck.end(), name) != stuck.end();
    };
    const bool reached =
        after == After::random ? draw() % 2 == 0 : after != After::nothing && after != After::data;
    if (reached && !waits(change.from) && !waits(change.to))
      apply(change, names);
    else
      stuck.insert(stuck.end(), {change.from, change.to});
  }
  Disk out;
  for (const auto& [path, file] : names) {
    const Bytes &now = file->bytes, &kept = file->kept;
    Bytes bytes = now;
    const auto zeroed = [&] {
      std::fill(bytes.begin() + std::ptrdiff_t(std::min(kept.size(), bytes.size())), bytes.end(),
                std::byte{0});
    };
    if (now != kept) switch (after == After::random ? After(draw() % 6) : after) {
        case After::nothing:
        case After::names:
          bytes = kept;
          break;
        case After::torn:
          bytes.resize(kept.size() + (now.size() - kept.size()) / 2);
          break;
        case After::zeros:
          zeroed();
          break;
        default:
          break;
      }
    out.overwrite(path, bytes);
  }
  return out;
}

}  // namespace lab16
