// Unusual and correct: readable text with one item per line, floats as the hex of their bits, the
// digest in the last line. The unfinished file has one name for all steps. Every save checks the
// digests of all files again before it removes old ones.
#pragma once

#include <bit>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "labs/16-checkpoint/disk.hpp"
#include "labs/kit/todo.hpp"

namespace lab16 {

struct Snapshot {
  std::int64_t step = 0;
  std::map<std::string, std::vector<float>> floats;
  std::map<std::string, std::string> texts;
};

struct Damaged : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline std::string hex(const std::string& text) {
  std::string out = "x";
  for (const unsigned char c : text) {
    out += "0123456789abcdef"[c / 16];
    out += "0123456789abcdef"[c % 16];
  }
  return out;
}
inline std::string from_hex(const std::string& text) {
  std::string out;
  for (std::size_t i = 1; i + 1 < text.size(); i += 2)
    out += char(std::stoi(text.substr(i, 2), nullptr, 16));
  return out;
}

inline Bytes pack(const Snapshot& snapshot) {
  std::ostringstream out;
  out << "step " << snapshot.step << '\n';
  for (const auto& [name, values] : snapshot.floats) {
    out << "floats " << hex(name) << ' ' << values.size();
    for (const float v : values)
      out << ' ' << std::hex << std::bit_cast<std::uint32_t>(v) << std::dec;
    out << '\n';
  }
  for (const auto& [name, value] : snapshot.texts)
    out << "text " << hex(name) << ' ' << hex(value) << '\n';
  std::string all = out.str();
  const auto* const first = reinterpret_cast<const std::byte*>(all.data());
  all += "digest " + std::to_string(digest({first, all.size()})) + "\n";
  const auto* const begin = reinterpret_cast<const std::byte*>(all.data());
  return {begin, begin + all.size()};
}

inline Snapshot unpack(std::span<const std::byte> bytes) {
  const std::string all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t last = all.rfind("digest ");
  if (last == std::string::npos ||
      all.substr(last) != "digest " + std::to_string(digest(bytes.first(last))) + "\n")
    throw Damaged("not what was written");
  Snapshot out;
  std::istringstream in(all.substr(0, last));
  for (std::string kind, name; in >> kind;) {
    if (kind == "step") in >> out.step;
    if (kind == "floats") {
      std::size_t n = 0;
      in >> name >> n;
      std::vector<float>& values = out.floats[from_hex(name)];
      for (; n > 0; --n) {
        std::uint32_t bits = 0;
        in >> std::hex >> bits >> std::dec;
        values.push_back(std::bit_cast<float>(bits));
      }
    }
    if (kind == "text") {
      std::string value;
      in >> name >> value;
      out.texts[from_hex(name)] = from_hex(value);
    }
  }
  return out;
}

inline void write_atomically(Disk& disk, const std::string& folder, const std::string& name,
                             std::span<const std::byte> bytes) {
  const std::string unfinished = folder + "/unfinished";
  disk.create(unfinished);
  try {
    for (std::size_t at = 0; at < bytes.size(); at += 40)  // in pieces, as from a stream
      disk.append(unfinished, bytes.subspan(at, std::min<std::size_t>(40, bytes.size() - at)));
  } catch (const DiskFull&) {
    disk.remove(unfinished);
    throw;
  }
  disk.sync(unfinished);
  disk.rename(unfinished, folder + "/" + name);
  disk.sync_folder(folder);
}

inline std::string snapshot_name(std::int64_t step) { return "step-" + std::to_string(step); }

class Checkpoints {
 public:
  Checkpoints(Disk& disk, std::string folder, int keep)
      : disk_(disk), folder_(std::move(folder)), keep_(keep) {}

  void save(const Snapshot& snapshot) {
    write_atomically(disk_, folder_, snapshot_name(snapshot.step), pack(snapshot));
    std::map<std::int64_t, bool> usable = look();
    int left = 0;
    for (auto entry = usable.rbegin(); entry != usable.rend(); ++entry)
      if (entry->second && ++left > keep_)
        disk_.remove(folder_ + "/" + snapshot_name(entry->first));
  }

  [[nodiscard]] std::optional<Snapshot> load_newest() {
    skipped_.clear();
    std::map<std::int64_t, bool> usable = look();
    for (auto entry = usable.rbegin(); entry != usable.rend(); ++entry) {
      if (entry->second) return unpack(disk_.read(folder_ + "/" + snapshot_name(entry->first)));
      skipped_.push_back(snapshot_name(entry->first));
    }
    return std::nullopt;
  }
  [[nodiscard]] const std::vector<std::string>& skipped() const { return skipped_; }

 private:
  std::map<std::int64_t, bool> look() {
    std::map<std::int64_t, bool> found;
    for (const std::string& name : disk_.list(folder_)) {
      if (!name.starts_with("step-") ||
          name.find_first_not_of("0123456789", 5) != std::string::npos)
        continue;
      const std::int64_t step = std::stoll("0" + name.substr(5));
      if (snapshot_name(step) != name) continue;
      try {
        found[step] = unpack(disk_.read(folder_ + "/" + name)).step == step;
      } catch (const Damaged&) {
        found[step] = false;
      }
    }
    return found;
  }
  Disk& disk_;
  std::string folder_;
  int keep_;
  std::vector<std::string> skipped_;
};

}  // namespace lab16
