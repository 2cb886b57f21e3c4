// Runs the job's rounds, and provides the log directories and file descriptors that they need.
#include "runtime/job/launch/launch.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <optional>

#include "runtime/base/error.hpp"
#include "runtime/job/launch/supervisor.hpp"
#include "runtime/job/store/door.hpp"

namespace ringsmith::launch {

namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kToForm{30'000};  // for nodes that were just present to form a round

bool may_repeat(const LaunchOptions& o) { return o.max_restarts > 0 || !o.nodes_numbered; }

// Creates the node's own directory, which must be empty: nothing is overwritten.
std::string make_log_folder(const LaunchOptions& o, const Round& round) {
  if (o.log_folder.empty()) return {};
  fs::path folder = o.log_folder;
  if (may_repeat(o)) folder /= "round-" + std::to_string(round.number);
  if (o.nodes > 1) folder /= "node-" + std::to_string(o.node);
  std::error_code error;
  fs::create_directories(folder, error);
  require(!error, "cannot make --log-dir '" + folder.string() + "': " + error.message());
  require(fs::is_empty(folder, error) && !error,
          "--log-dir '" + folder.string() + "' is not empty; nothing is overwritten: name another");
  return folder;
}

// File descriptors of ringrun, per rank and in total. The ranks inherit the limit.
constexpr std::uint64_t kFilesOfRank = 4;  // its two streams, and two store connections
constexpr std::uint64_t kLogsOfRank = 2;   // files of --log-dir
constexpr std::uint64_t kOtherFiles = 32;
constexpr std::uint64_t kBetweenTwoRanks = 8;  // maximum that a rank opens per peer
constexpr std::uint64_t kFewStrangers = 8, kManyStrangers = 512;

// Raises the limit if possible. Unauthenticated connections to the store get only the descriptors
// that the launcher does not need.
void allow_launcher_files(LaunchOptions& o) {
  const auto ranks = static_cast<std::uint64_t>(o.ranks_here);
  const auto nodes = static_cast<std::uint64_t>(o.nodes);
  const std::uint64_t needed =
      kOtherFiles + ranks * (kFilesOfRank + (o.log_folder.empty() ? 0 : kLogsOfRank));
  const std::uint64_t allowed = allow_open_files(
      std::max(needed + kManyStrangers, 2 * kOtherFiles + kBetweenTwoRanks * ranks * nodes));
  require(allowed >= needed,
          "--nproc-per-node " + std::to_string(ranks) + " needs " + std::to_string(needed) +
              " open files, but this process is limited to " + std::to_string(allowed) +
              ": raise it with 'ulimit -n " + std::to_string(needed) + "', or start fewer ranks");
  const bool two_stores = may_repeat(o) && nodes > 1;  // the rendezvous' and the round's
  o.max_pending_strangers =
      std::clamp((allowed - needed) / (two_stores ? 2 : 1), kFewStrangers, kManyStrangers);
}

// Returns the address at which all nodes reach node 0. The default is derived from `bind` if that
// is set, else it is the loopback address.
std::string master_address(const LaunchOptions& o) {
  if (!o.master_address.empty()) return o.master_address;
  return o.bind.empty() ? comm::tcp::loopback_address() : comm::tcp::dial_for(o.bind);
}

RoundEnd run_round(const LaunchOptions& job, const Round& round, const std::string& program,
                   Guardian& guardian, Rendezvous& rendezvous) {
  LaunchOptions options = job;
  options.node = round.node;
  options.nodes = round.nodes;
  options.log_folder = make_log_folder(options, round);
  if (rendezvous.meets()) {
    options.master_port = round.port;
    options.join_timeout = std::min(job.join_timeout, kToForm);
  }
  std::optional<Nodes> nodes;
  // Destroyed before `nodes`, so that a second signal terminates ringrun while ~Nodes() waits.
  const Signals signals;
  try {
    nodes.emplace(
        options, rendezvous.secret_of(round),
        [&](std::uint16_t port) { rendezvous.open(round, port); }, signals.ending.get());
  } catch (const CommError& e) {
    if (!rendezvous.meets()) throw;
    say(e.what());
    return {static_cast<int>(e.exit_code()), Rendezvous::Outcome::failed};
  }
  if (round.number > 0)
    say(fmt::format("round {}: {} ranks on {} {}, restart {} of {}", round.number,
                    nodes->place_of(0).world, round.nodes, round.nodes == 1 ? "node" : "nodes",
                    round.restarts, job.max_restarts));
  return supervise(options, round, program, signals, guardian, *nodes, rendezvous);
}

}  // namespace

int launch(const LaunchOptions& asked) {
  LaunchOptions options = asked;
  options.join_timeout = checked_timeout("LaunchOptions::join_timeout", asked.join_timeout);
  options.exit_timeout = checked_timeout("LaunchOptions::exit_timeout", asked.exit_timeout);
  options.quorum_timeout = checked_timeout("LaunchOptions::quorum_timeout", asked.quorum_timeout);
  options.grace = limited(options.grace);
  // If another launcher started this one, makes the door to that launcher's store close-on-exec, so
  // that the ranks do not inherit it.
  (void)comm::store::find_door(std::getenv(comm::store::kDoorVariable));
  allow_launcher_files(options);
  options.master_address = master_address(options);
  const std::string number = comm::tcp::loopback_behind(options.master_address);
  if (options.nodes > 1 && options.bind.empty() && !number.empty() &&
      (!options.nodes_numbered || options.node == 0))
    say(
        fmt::format("'{}' is {} here, which no other node can reach: listening on all interfaces; "
                    "use --bind to choose one",
                    options.master_address, number));
  const std::string program = find_program(options.command.at(0));
  // Reports an unusable log folder before the other nodes arrive. With several rounds, the node's
  // number may not be known yet.
  if (!may_repeat(options)) (void)make_log_folder(options, {});
  std::optional<Orphans> orphans;
  if (may_repeat(options)) orphans.emplace();
  Guardian guardian;  // forks, so it is created before any thread
  Rendezvous rendezvous(options, job_secret(options));
  RoundEnd end;
  try {
    for (auto round = rendezvous.next(end.how); round; round = rendezvous.next(end.how)) {
      end = run_round(options, *round, program, guardian, rendezvous);
      if (!orphans) continue;
      for (const pid_t pid : orphans->end(guardian.pid(), Deadline::in(kDeath)))
        say(fmt::format("pid {}, which a rank left behind, survives SIGKILL", pid));
    }
  } catch (const std::exception& e) {
    rendezvous.close(static_cast<int>(ExitCode::internal), e.what());
    throw;
  }
  if (end.how == Rendezvous::Outcome::none) return rendezvous.exit_code();
  const char* const why = end.how == Rendezvous::Outcome::well ? "all ranks succeeded"
                          : end.how == Rendezvous::Outcome::stopped
                              ? "a signal ended ringrun on node 0"
                              : "no restarts are left";
  rendezvous.close(end.exit_code, why);
  return end.exit_code;
}

}  // namespace ringsmith::launch
