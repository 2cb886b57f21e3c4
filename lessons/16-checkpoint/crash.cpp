// crash: four ways to replace a file, with the power cut before every operation, and the content
// that is found after the restart. The disk is lab 16's: a change that was not synced may be
// complete, partial or missing.
#include <cstdio>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "labs/16-checkpoint/disk.hpp"

using lab16::Bytes;
using lab16::Disk;

namespace {

Bytes content(char c) { return Bytes(64, std::byte(c)); }

// Returns the content that a reader finds at run/model: o the old one, n the new one, X neither,
// - no file.
char found(const Disk& disk) {
  try {
    const Bytes bytes = disk.read("run/model");
    return bytes == content('o') ? 'o' : bytes == content('n') ? 'n' : 'X';
  } catch (const lab16::NoSuchFile&) {
    return '-';
  }
}

struct Way {
  const char* name;
  std::vector<std::pair<const char*, std::function<void(Disk&)>>> steps;
};

std::vector<Way> ways() {
  const std::string path = "run/model", unfinished = "run/model.tmp";
  const std::pair<const char*, std::function<void(Disk&)>> create{
      "create", [=](Disk&d) { d.create(unfinished); }},
      write{"write", [=](Disk&d) { d.append(unfinished, content('n')); }},
      sync{"fsync", [=](Disk&d) { d.sync(unfinished); }},
      rename{"rename", [=](Disk&d) { d.rename(unfinished, path); }},
      folder{"fsync folder", [](Disk&d) { d.sync_folder("run"); }};
  return {{"in its place",
           {{"create", [=](Disk& d) { d.create(path); }},
            {"write", [=](Disk& d) { d.append(path, content('n')); }},
            {"fsync", [=](Disk& d) { d.sync(path); }}}},
          {"renamed", {create, write, rename}},
          {"flushed, renamed", {create, write, sync, rename}},
          {"and the folder flushed", {create, write, sync, rename, folder}}};
}

// Returns all contents that may be found when the power is cut before operation `at` of the way.
std::string after(const Way& way, std::size_t at) {
  Disk disk;
  disk.overwrite("run/model", content('o'));
  for (std::size_t i = 0; i < at; ++i) way.steps[i].second(disk);
  std::set<char> seen;
  for (int kind = 0; kind <= int(Disk::After::random); ++kind)
    for (std::uint64_t seed = 0; seed < 20; ++seed)
      seen.insert(found(disk.reboot(Disk::After(kind), seed)));
  std::string text;
  for (const char c : {'o', 'n', 'X', '-'})
    if (seen.count(c) > 0) text += text.empty() ? std::string(1, c) : std::string(" ") + c;
  return text;
}

}  // namespace

int main() {
  std::printf("o the old file, n the new one, X neither, - none\n");
  for (const Way& way : ways()) {
    std::printf("%s\n", way.name);
    for (std::size_t at = 0; at <= way.steps.size(); ++at) {
      const std::string when = at == way.steps.size()
                                   ? "after it has returned"
                                   : std::string("before ") + way.steps[at].first;
      std::printf("  %-22s %s\n", when.c_str(), after(way, at).c_str());
    }
  }
}
