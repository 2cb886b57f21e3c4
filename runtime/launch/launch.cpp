#include "runtime/launch/launch.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "runtime/base/error.hpp"
#include "runtime/base/process.hpp"
#include "runtime/comm/bootstrap/store/door.hpp"
#include "runtime/launch/process.hpp"
#include "runtime/launch/supervisor.hpp"

namespace ringsmith::launch {

namespace {

namespace fs = std::filesystem;

// The node's own folder, new or empty: nothing of an earlier job is written over.
std::string make_log_folder(const LaunchOptions& o) {
  if (o.log_folder.empty()) return {};
  fs::path folder = o.log_folder;
  if (o.nodes > 1) folder /= "node-" + std::to_string(o.node);
  std::error_code error;
  fs::create_directories(folder, error);
  require(!error, "cannot make --log-dir '" + folder.string() + "': " + error.message());
  require(fs::is_empty(folder, error) && !error,
          "--log-dir '" + folder.string() + "' is not empty; nothing is overwritten: name another");
  return folder;
}

// What ringrun opens, by rank and besides; the ranks themselves inherit the limit.
constexpr std::uint64_t kFilesOfRank = 4;  // its two streams, and two connections to the store
constexpr std::uint64_t kLogsOfRank = 2;   // files of --log-dir
constexpr std::uint64_t kOtherFiles = 32;
constexpr std::uint64_t kBetweenTwoRanks = 8;  // what a rank opens for each other one, at most
constexpr std::uint64_t kFewStrangers = 8, kManyStrangers = 512;

// Raises the limit if it can be raised. What is left above the launcher's own needs is for
// strangers who knock at the store: they must not take what the ranks need.
void allow_files(LaunchOptions& o) {
  const auto ranks = static_cast<std::uint64_t>(o.ranks_here);
  const auto nodes = static_cast<std::uint64_t>(o.nodes);
  const std::uint64_t needed =
      kOtherFiles + ranks * (kFilesOfRank + (o.log_folder.empty() ? 0 : kLogsOfRank));
  const std::uint64_t allowed = allow_open_files(
      std::max(needed + kManyStrangers, 2 * kOtherFiles + kBetweenTwoRanks * ranks * nodes));
  require(allowed >= needed,
          "--nproc-per-node " + std::to_string(ranks) + " needs " + std::to_string(needed) +
              " open files, but this process may have " + std::to_string(allowed) +
              ": 'ulimit -n " + std::to_string(needed) + "' allows them, or start fewer ranks");
  o.most_strangers = std::clamp(allowed - needed, kFewStrangers, kManyStrangers);
}

}  // namespace

int launch(const LaunchOptions& asked) {
  LaunchOptions options = asked;
  // That of a launcher which started us is not for our ranks.
  (void)comm::store::find_door(std::getenv(comm::store::kDoorVariable));
  allow_files(options);
  const std::string program = find_program(options.command.at(0));
  options.log_folder = make_log_folder(options);
  Guardian guardian;  // forks, so it comes before all threads
  Nodes nodes(options);
  return Supervisor(options, guardian, nodes).run(program);
}

}  // namespace ringsmith::launch
