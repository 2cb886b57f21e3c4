// book_crash: a program that replaces a file, and the power cut before each of its operations.
//
//     book_crash create write fsync rename sync-folder
//
// A live figure of the book. The disk is lab 16's: a change that was not synced may be complete,
// partial or missing. The old file is run/model; `write` and `fsync` act on run/model.tmp, or on
// run/model itself with --in-place.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "labs/16-checkpoint/disk.hpp"
#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"

using lab16::Disk;
using nlohmann::json;

namespace {

constexpr int kSeeds = 20;
const std::string kPath = "run/model";

lab16::Bytes content(char c) { return lab16::Bytes(64, std::byte(c)); }

std::string found(const Disk& disk) {
  try {
    const lab16::Bytes bytes = disk.read(kPath);
    return bytes == content('o') ? "old" : bytes == content('n') ? "new" : "broken";
  } catch (const lab16::NoSuchFile&) {
    return "none";
  }
}

void play(Disk& disk, const std::string& operation, bool in_place) {
  const std::string file = in_place ? kPath : kPath + ".tmp";
  if (operation == "create") disk.create(file);
  if (operation == "write") disk.append(file, content('n'));
  if (operation == "fsync") disk.sync(file);
  if (operation == "rename") disk.rename(file, kPath);
  if (operation == "sync-folder") disk.sync_folder("run");
}

// Returns every content that a reader may find if the power is cut before operation `at`.
std::vector<std::string> after(const std::vector<std::string>& way, bool in_place, std::size_t at) {
  Disk disk;
  disk.overwrite(kPath, content('o'));
  for (std::size_t i = 0; i < at; ++i) play(disk, way[i], in_place);
  std::set<std::string> seen;
  for (int kind = 0; kind <= int(Disk::After::random); ++kind)
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed)
      seen.insert(found(disk.reboot(Disk::After(kind), seed)));
  std::vector<std::string> out;
  for (const char* each : {"old", "new", "broken", "none"})
    if (seen.count(each) > 0) out.emplace_back(each);
  return out;
}

int run(int argc, char** argv) {
  std::vector<std::string> way;
  bool in_place = false, as_data = false;
  ringsmith::apps::CommandLine app("A file is replaced, and the power cut before each operation.",
                                   "book_crash");
  app.add_option("operations", way, "create, write, fsync, rename, sync-folder")->required();
  app.add_flag("--in-place", in_place, "write into the file itself");
  app.add_flag("--json", as_data, "print JSON");
  if (!app.parse(argc, argv)) return 0;
  ringsmith::require(way.size() <= 8, "at most 8 operations");
  bool there = in_place;
  for (const std::string& operation : way) {
    ringsmith::require(
        ringsmith::apps::one_of({"create", "write", "fsync", "rename", "sync-folder"})(operation)
            .empty(),
        "'" + operation + "' is not create, write, fsync, rename or sync-folder");
    ringsmith::require(there || operation == "create" || operation == "sync-folder",
                       operation + " comes before create");
    there = in_place || operation == "create" || (there && operation != "rename");
  }
  json moments = json::array();
  std::string text;
  for (std::size_t at = 0; at <= way.size(); ++at) {
    const std::vector<std::string> seen = after(way, in_place, at);
    moments.push_back(seen);
    text += fmt::format("{:<24} {}\n", at == way.size() ? "after the last" : "before " + way[at],
                        fmt::join(seen, " or "));
  }
  fmt::print(
      "{}", as_data ? json{{"way", way}, {"in_place", in_place}, {"moments", moments}}.dump() + "\n"
                    : text);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return ringsmith::apps::run_program("book_crash", [&] { return run(argc, argv); });
}
