#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "runtime/base/atomic_file.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/process.hpp"
#include "runtime/job/bootstrap.hpp"

namespace ringsmith::comm {

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::milliseconds kFilePoll{2};
constexpr std::array<const char*, 5> kNames{"rank-", "record-", "left-", "aside-", "verdict"};
constexpr char kMismatch = 'M', kLate = 'T';

std::optional<std::string> read_whole(const std::string& path) {
  if (const std::string kind = odd_kind(path); !kind.empty())
    throw UsageError("'" + path + "' is " + kind +
                     ": remove the meeting folder, or name a new one");
  std::ifstream in(path, std::ios::binary);
  if (!in) return {};
  return std::string{std::istreambuf_iterator<char>(in), {}};
}

bool is_ours(const std::string& name) {
  for (const char* start : kNames)
    if (name.rfind(start, 0) == 0) return true;
  return false;
}

void require_ours(const std::string& folder, const std::string& where) {
  struct stat status {};
  const bool there = stat(folder.c_str(), &status) == 0;
  require(there, "cannot read " + where + ": " + std::strerror(errno));
  require(S_ISDIR(status.st_mode), where + " is not a folder: name another one");
  require(status.st_uid == geteuid(),
          where + " belongs to user " + std::to_string(status.st_uid) +
              ", who could impersonate ranks: name a new one, or one of your own");
  require((status.st_mode & (S_IWGRP | S_IWOTH)) == 0,
          where +
              " is writable by other users, who could impersonate ranks: chmod 700 it, or "
              "name a new one");
}

// The file rank-N contains "SIZE PLACE".
std::string size_in(const std::string& member) { return member.substr(0, member.find(' ')); }
std::string place_in(const std::string& member) {
  const std::size_t blank = member.find(' ');
  return blank == std::string::npos ? "an unknown process" : member.substr(blank + 1);
}

}  // namespace

FileBootstrap::FileBootstrap(std::string folder, int rank, int world,
                             std::chrono::milliseconds timeout)
    : folder_(std::move(folder)), rank_(rank), world_(world), timeout_(timeout) {
  const std::string where = "the meeting folder '" + folder_ + "'";
  const bool there = mkdir(folder_.c_str(), 0700) == 0 || errno == EEXIST;
  require(there, "cannot make " + where + ": " + std::strerror(errno));
  require_ours(folder_, where);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error))
    require(
        is_ours(entry.path().filename()),
        where + " holds other files ('" + entry.path().filename().string() + "'): name a new one");
  require(!error, "cannot read " + where + ": " + error.message());
  const std::string left_behind = "; if " + where + " was left behind by an earlier job, remove it";
  const bool judged = fs::exists(path("verdict"), error);
  const std::string name = "rank-" + std::to_string(rank_);
  const std::string mine = std::to_string(world_) + " " + process_place();
  if (!create(name, mine)) {
    const std::string theirs = read_whole(path(name)).value_or("? a process that has ended");
    fail(kMismatch, "rank " + std::to_string(rank_) + " was given twice: to " + place_in(theirs) +
                        " and to " + process_place() + left_behind);
  }
  look_at_members(judged ? left_behind : "");
}

FileBootstrap::~FileBootstrap() {
  try {
    static_cast<void>(create("left-" + std::to_string(rank_), ""));
    std::error_code error;
    for (int r = 0; r < world_; ++r)
      if (!fs::exists(path("left-" + std::to_string(r)), error)) return;
    for (const auto& entry : fs::directory_iterator(folder_, error))
      if (is_ours(entry.path().filename())) fs::remove(entry.path(), error);
    fs::remove(folder_, error);
  } catch (const std::exception&) {  // the next job reports that the folder must be removed
  }
}

std::string FileBootstrap::record_name(int rank, std::uint64_t round) const {
  return "record-" + std::to_string(rank) + "-" + std::to_string(round);
}

bool FileBootstrap::create(const std::string& name, const std::string& text) const {
  const std::string aside = path("aside-" + name + "-" + std::to_string(getpid()) + "-XXXXXX");
  std::string made = aside;
  const Descriptor file(mkstemp(made.data()));
  const auto check = [&](bool good) {
    if (!good && is_lack(errno)) throw_errno("cannot write '" + path(name) + "'", errno);
    if (!good)
      throw CommError("cannot write '" + path(name) + "': " + std::strerror(errno),
                      {.rank = rank_, .op = {}});
  };
  check(file.valid());
  const bool written =
      write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const bool linked = written && link(made.c_str(), path(name).c_str()) == 0;
  const int error = errno;
  unlink(made.c_str());
  errno = error;
  check(written && (linked || error == EEXIST));
  return linked;
}

// Throws if there is a verdict, or if a rank that has arrived has another world size. The remedy
// follows the verdict's text, unless it is part of it.
void FileBootstrap::look_at_members(const std::string& remedy) const {
  if (const auto text = read_whole(path("verdict")); text) {
    if (text->size() < 2 || (text->front() != kMismatch && text->front() != kLate))
      throw CommError(
          "'" + path("verdict") + "' was not written by a rank: remove the meeting folder",
          {.rank = rank_, .op = {}});
    fail(text->front(), text->substr(1) + (text->ends_with(remedy) ? "" : remedy));
  }
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename();
    if (name.rfind("rank-", 0) != 0) continue;
    const std::string member = read_whole(entry.path()).value_or("");
    const std::string size = size_in(member);
    if (!member.empty() && size != std::to_string(world_))
      fail(kMismatch, "the ranks disagree: WORLD_SIZE is " + std::to_string(world_) + " for rank " +
                          std::to_string(rank_) + " (" + process_place() + "), but " + size +
                          " for rank " + name.substr(5) + " (" + place_in(member) + ")");
  }
}

std::vector<std::string> FileBootstrap::all_gather(const std::string& record) {
  const Deadline deadline = Deadline::in(timeout_);
  if (!create(record_name(rank_, round_), record))
    throw CommError("'" + path(record_name(rank_, round_)) + "' already exists",
                    {.rank = rank_, .op = {}});
  std::vector<std::string> records;
  while (static_cast<int>(records.size()) < world_) {
    const int next = static_cast<int>(records.size());
    if (auto text = read_whole(path(record_name(next, round_))); text) {
      records.push_back(std::move(*text));
      continue;
    }
    look_at_members();
    if (deadline.passed()) report_missing();
    std::this_thread::sleep_for(kFilePoll);
  }
  // All ranks have written their records of this round, so they have read this rank's previous
  // record.
  if (round_ > 0) unlink(path(record_name(rank_, round_ - 1)).c_str());
  ++round_;
  return records;
}

void FileBootstrap::report_missing() const {
  std::string text;
  for (int r = 0; r < world_; ++r) {
    if (read_whole(path(record_name(r, round_)))) continue;
    const auto member = read_whole(path("rank-" + std::to_string(r)));
    text +=
        (text.empty() ? "" : "; ") + ("rank " + std::to_string(r)) +
        (member ? " (" + place_in(*member) + ") arrived, but got no further" : " never arrived");
  }
  fail(kLate, "rank " + std::to_string(rank_) + " (" + process_place() + ") has waited " +
                  std::to_string(timeout_.count()) + " ms for the others: " + text);
}

void FileBootstrap::fail(char kind, const std::string& text) const {
  static_cast<void>(create("verdict", kind + text));
  const Where where{.rank = rank_, .op = {}};
  if (kind == kLate) throw TimeoutError(text, where);
  throw MismatchError(text, where);
}

}  // namespace ringsmith::comm
