// Lab 16, part 1: a checkpoint file is either complete or absent.
//
//   save(20)   step-20.tmp: create, append, sync   rename to step-20   sync_folder   remove step-5
//                            |                        |                   |              |
//   power cut here leaves    step-10                  step-10             10 or 20       20
//
// The disk is simulated (disk.hpp), so that the power can be cut before every operation.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "labs/16-checkpoint/disk.hpp"
#include "labs/kit/todo.hpp"

namespace lab16 {

struct Snapshot {
  std::int64_t step = 0;
  std::map<std::string, std::vector<float>> floats;  // any bits, including NaN
  std::map<std::string, std::string> texts;          // any bytes
};

struct Damaged : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Task 1. Returns the snapshot as bytes, in a format of your choice, from which unpack() can detect
// any lost, added or changed byte: use digest() of disk.hpp.
inline Bytes pack(const Snapshot& snapshot) {
#ifdef SOLUTION
  Bytes out(sizeof(std::uint64_t));  // room for the digest
  const auto raw = [&](const void* from, std::size_t bytes) {
    const auto* const first = static_cast<const std::byte*>(from);
    out.insert(out.end(), first, first + bytes);
  };
  const auto number = [&](std::uint64_t n) { raw(&n, sizeof n); };
  const auto text = [&](const std::string& s) {
    number(s.size());
    raw(s.data(), s.size());
  };
  number(std::uint64_t(snapshot.step));
  number(snapshot.floats.size());
  for (const auto& [name, values] : snapshot.floats) {
    text(name);
    number(values.size());
    raw(values.data(), values.size() * sizeof(float));
  }
  number(snapshot.texts.size());
  for (const auto& [name, value] : snapshot.texts) {
    text(name);
    text(value);
  }
  const std::uint64_t check = digest(std::span(out).subspan(sizeof check));
  std::memcpy(out.data(), &check, sizeof check);
  return out;
#else
  (void)snapshot;
  kit::todo("task 1, pack");
#endif
}

// Task 1. Returns the snapshot; throws Damaged unless the bytes are exactly a result of pack().
inline Snapshot unpack(std::span<const std::byte> bytes) {
#ifdef SOLUTION
  std::uint64_t check = 0;
  if (bytes.size() < sizeof check) throw Damaged("cut");
  std::memcpy(&check, bytes.data(), sizeof check);
  std::span<const std::byte> rest = bytes.subspan(sizeof check);
  if (digest(rest) != check) throw Damaged("the digest differs");
  const auto take = [&](std::size_t n) {
    if (n > rest.size()) throw Damaged("cut");  // an empty rest has a valid digest too
    const auto part = rest.first(n);
    rest = rest.subspan(n);
    return part;
  };
  const auto number = [&] {
    std::uint64_t n = 0;
    std::memcpy(&n, take(sizeof n).data(), sizeof n);
    return n;
  };
  const auto text = [&] {
    const auto part = take(number());
    return std::string(reinterpret_cast<const char*>(part.data()), part.size());
  };
  Snapshot out;
  out.step = std::int64_t(number());
  for (std::uint64_t left = number(); left > 0; --left) {
    std::vector<float>& values = out.floats[text()];
    values.resize(number());
    const auto part = take(values.size() * sizeof(float));
    if (!part.empty()) std::memcpy(values.data(), part.data(), part.size());
  }
  for (std::uint64_t left = number(); left > 0; --left) {
    const std::string name = text();
    out.texts[name] = text();
  }
  return out;
#else
  (void)bytes;
  kit::todo("task 1, unpack");
#endif
}

// Task 2. When it returns, folder/name holds these bytes durably: no later power cut loses them.
// While it runs, and after a power cut during the call, folder/name has either its old content or
// these bytes. If it throws (DiskFull), folder/name has its old content, and no file of another
// name is left.
inline void write_atomically(Disk& disk, const std::string& folder, const std::string& name,
                             std::span<const std::byte> bytes) {
#ifdef SOLUTION
  const std::string path = folder + "/" + name, unfinished = path + ".tmp";
  disk.create(unfinished);
  try {
    disk.append(unfinished, bytes);
    disk.sync(unfinished);
  } catch (const std::exception&) {
    disk.remove(unfinished);
    throw;
  }
  disk.rename(unfinished, path);
  disk.sync_folder(folder);
#else
  (void)disk, (void)folder, (void)name, (void)bytes;
  kit::todo("task 2, write_atomically");
#endif
}

// Returns "step-20" for 20. step_of() is the inverse, and returns nullopt for any other name.
inline std::string snapshot_name(std::int64_t step) { return "step-" + std::to_string(step); }
inline std::optional<std::int64_t> step_of(const std::string& name) {
  std::int64_t step = 0;
  if (!name.starts_with("step-")) return std::nullopt;
  const auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
  if (error != std::errc{} || snapshot_name(step) != name) return std::nullopt;
  return step;
}

// Task 3. The checkpoints of one training run, in a separate folder, one file per checkpoint, named
// snapshot_name(step). Files of other names belong to others and must not be touched, except your
// own unfinished ones.
class Checkpoints {
 public:
  Checkpoints(Disk& disk, std::string folder, int keep)
      : disk_(disk), folder_(std::move(folder)), keep_(keep) {}

  // When it returns, the snapshot is durable, and of the usable checkpoints exactly the newest
  // `keep` exist. At all times, at least as many usable ones exist as before the call, up to
  // `keep`. (A checkpoint that the last load_newest() skipped is not usable.) A step may be saved
  // again. Removes unfinished files of an earlier power cut. Throws whatever write_atomically()
  // throws, in which case the folder is unchanged.
  void save(const Snapshot& snapshot) {
#ifdef SOLUTION
    write_atomically(disk_, folder_, snapshot_name(snapshot.step), pack(snapshot));
    useless_.erase(snapshot_name(snapshot.step));
    std::vector<std::int64_t> steps;
    for (const std::string& name : disk_.list(folder_)) {
      const auto step = step_of(name);
      if (step && !useless_.contains(name)) steps.push_back(*step);
      if (name.ends_with(".tmp") && step_of(name.substr(0, name.size() - 4)))
        disk_.remove(folder_ + "/" + name);
    }
    std::sort(steps.rbegin(), steps.rend());
    for (std::size_t i = std::size_t(keep_); i < steps.size(); ++i)
      disk_.remove(folder_ + "/" + snapshot_name(steps[i]));
#else
    (void)snapshot;
    kit::todo("task 3, Checkpoints::save");
#endif
  }

  // Returns the newest usable checkpoint, or nullopt if there is none. Leaves unusable ones in the
  // folder.
  [[nodiscard]] std::optional<Snapshot> load_newest() {
#ifdef SOLUTION
    useless_.clear();
    skipped_.clear();
    std::vector<std::int64_t> steps;
    for (const std::string& name : disk_.list(folder_))
      if (const auto step = step_of(name)) steps.push_back(*step);
    std::sort(steps.rbegin(), steps.rend());
    for (const std::int64_t step : steps) {
      const std::string name = snapshot_name(step);
      try {
        Snapshot found = unpack(disk_.read(folder_ + "/" + name));
        if (found.step == step) return found;
      } catch (const Damaged&) {
      }
      useless_.insert(name);
      skipped_.push_back(name);
    }
    return std::nullopt;
#else
    kit::todo("task 3, Checkpoints::load_newest");
#endif
  }
  // Names that the last load_newest() skipped, newest first.
  [[nodiscard]] const std::vector<std::string>& skipped() const { return skipped_; }

 private:
  Disk& disk_;
  std::string folder_;
  int keep_;
  std::vector<std::string> skipped_;
#ifdef SOLUTION
  std::set<std::string> useless_;  // names that load_newest() could not use
#endif
};

}  // namespace lab16
