// ringrun: starts N ranks of a program on this host, or on each of several hosts, and waits for
// them. Options that torchrun also has mean the same as in torchrun.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <sstream>
#include <tuple>
#include <utility>
#include <vector>

#include "labs/apps/common/command_line.hpp"
#include "labs/apps/common/processor.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/transport/tcp/address.hpp"
#include "runtime/job/launch/launch.hpp"
#include "runtime/job/launch/supervisor.hpp"
#include "runtime/job/store/secret.hpp"

namespace ringsmith::apps {
namespace {

constexpr double kQuorumSeconds = 60;

constexpr const char* kFooter = R"(
Arguments after the program's name are passed to the program. The standard
input of the ranks is empty: give them files. One host:
  ringrun --standalone --nproc-per-node 4
          -- build/release/bin/train_gpt --steps 100
Two hosts (node 1 with --node-rank 1):
  ringrun --nnodes 2 --node-rank 0 --nproc-per-node 4
          --master-addr 10.0.0.1 --master-port 29500
          -- build/release/bin/all_reduce_perf
Two to four hosts that may join and leave; the same line on each. The first
holds the rendezvous:
  ringrun --nnodes 2:4 --nproc-per-node 4 --max-restarts 3 --rdzv-backend c10d
          --rdzv-endpoint 10.0.0.1:29400
          -- build/release/bin/train_gpt ... --resume auto

Nodes prove to each other that they know the job's secret: --secret-file, or
RINGSMITH_SECRET, or ~/.ringsmith-secret, which the first job on several nodes
creates. Hosts that do not share the home folder need a copy of it. With
--no-secret anyone who can reach the port can take a node's place and end the
job. A secret keeps strangers out of the job; the data that its ranks send
between hosts is neither encrypted nor authenticated: use a trusted network.

When a rank fails, ringrun ends all others, on all nodes: with SIGTERM and,
after 5 s or --grace, SIGKILL. The last lines printed name the rank that failed
first, when and how it failed, and its last output. A rank that succeeds before
the others end is not a failure.
SIGTERM, SIGINT, SIGHUP and SIGQUIT are passed on and end the job: ranks that
still run after --grace, or at a second signal, are killed. SIGUSR1 and SIGUSR2
are passed on. Programs that save when they get SIGTERM or SIGUSR1 end with exit
code 75, and if all ranks do, so does ringrun: run the same command again to
continue. Signals that are ignored when ringrun starts (nohup) stay ignored, in
the ranks too. If ringrun is killed, so are its ranks.

A round is one start of all ranks. With --max-restarts a failure or the loss of
a node ends the round, and the next one begins with the nodes that are present,
once there are MIN: immediately if no node is lost, otherwise after --last-call.
A node that joins while there are fewer than MAX also ends the round, which does
not count as a restart; nodes beyond MAX wait. Ranks are renumbered and continue
from what they have saved. A signal to one ringrun then removes its node from
the job. Node 0 holds the rendezvous: if it ends, so does the job.

With --per-step a lost rank is restarted alone, and the others continue. If it
is lost 5 times in a row before a step with it has counted, the job ends, as it
does after other failures.

Environment of every rank:
  RANK, WORLD_SIZE              among all ranks, from 0
  LOCAL_RANK, LOCAL_WORLD_SIZE  among the ranks of its node
  GROUP_RANK, GROUP_WORLD_SIZE  its node, among all nodes
  RINGSMITH_ROUND               number of earlier rounds
  TORCHELASTIC_RESTART_COUNT    how many of them ended with a failure, at most
  TORCHELASTIC_MAX_RESTARTS     --max-restarts
  TORCHELASTIC_RUN_ID           --rdzv-id
  MASTER_ADDR, MASTER_PORT      where ringrun's store listens; every round has
                                a new port
  RINGSMITH_STORE               'launcher': ringrun's store is there; the ranks
                                need not start one
  RINGSMITH_SECRET              the secret that the store requires
  RINGSMITH_STORE_FD            on node 0, an inherited socket that leads to the
                                store directly; a program that does not find it
                                open uses the address
  RINGSMITH_PER_STEP            1 with --per-step: ringrun coordinates the ranks
  OMP_NUM_THREADS               1, unless it is set or its node has only one
                                rank
Environment that ringrun reads:
  RINGSMITH_SECRET, RINGSMITH_SECRET_FILE
                                the job's secret, without --secret-file; on one
                                node ringrun creates one
  HOME                          where the user's secret is, without these
  PATH                          where ringrun searches for the program

Exit codes: 0 all ranks succeeded; the code of the rank that failed first (128 +
signal if a signal ended it); 75 all ranks have saved, because a signal asked
them to stop; 128 + signal if one ended ringrun otherwise; 1 another node's
ringrun was stopped, or a file of --log-dir could not be written in full, 3
another node is lost, 4 a deadline passed, 6 wrong options, 7 no more files,
memory or processes for ringrun.)";

int whole_number(const std::string& option, const std::string& text, int least, int most) {
  const auto n = read_whole(text);
  require(n && *n >= least && *n <= most,
          fmt::format("{} '{}' is not a whole number from {} to {}", option, text, least, most));
  return static_cast<int>(*n);
}

int ranks_per_node(const std::string& text) {
  if (text == "auto" || text == "cpu") {
    if (const auto quota = cpu_quota(); quota && *quota < cores_to_run_on())
      launch::say(fmt::format("--nproc-per-node {}: {}, by the CPU quota of {:.4g} on {} cores",
                              text, allowed_cores(), *quota, cores_to_run_on()));
    return allowed_cores();
  }
  require(!text.empty() && text.find_first_not_of("0123456789") == std::string::npos,
          "--nproc-per-node '" + text +
              "': give a number, or auto or cpu (one rank for each core "
              "that this process may use)");
  return whole_number("--nproc-per-node", text, 1, 1024);
}

// Parses "4", or torchrun's "2:4", the minimum and the maximum.
std::pair<int, int> number_of_nodes(const std::string& text) {
  const std::size_t colon = text.find(':');
  const int least = whole_number("--nnodes", text.substr(0, colon), 1, 1024);
  if (colon == std::string::npos) return {least, least};
  const int most = whole_number("--nnodes", text.substr(colon + 1), 1, 1024);
  require(least <= most, "--nnodes '" + text + "': give MIN:MAX, where MIN is not more than MAX");
  return {least, most};
}

struct Meeting {
  std::string backend, endpoint;
};

constexpr const char* kStaticPort = "29500";  // torchrun's default ports
constexpr const char* kC10dPort = "29400";

// Parses "host:29400", "host" or "[::1]:29400".
void read_endpoint(launch::LaunchOptions& o, const std::string& text, const char* default_port) {
  const std::size_t bracket = text.rfind(']');
  const std::size_t colon = text.find(':', bracket == std::string::npos ? 0 : bracket);
  std::string host = text.substr(0, colon);
  if (bracket != std::string::npos && host.front() == '[') host = host.substr(1, bracket - 1);
  require(!host.empty(), "--rdzv-endpoint '" + text + "': give HOST:PORT");
  o.master_address = host;
  o.master_port = comm::tcp::parse_port(
      "the port in --rdzv-endpoint '" + text + "'",
      colon == std::string::npos ? default_port : text.substr(colon + 1), o.nodes == 1);
}

// Parses torchrun's key=value,key=value.
void read_conf(const std::string& text, double& join, double& last_call) {
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) {
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string key = word.substr(0, equals);
    require(key == "join_timeout" || key == "timeout" || key == "last_call_timeout",
            "--rdzv-conf '" + word +
                "': give join_timeout=SECONDS or last_call_timeout=SECONDS, separated by a comma");
    const std::string value = equals == word.size() ? "" : word.substr(equals + 1);
    (key == "last_call_timeout" ? last_call : join) =
        whole_number("--rdzv-conf " + key, value, 1, static_cast<int>(kMostSeconds));
  }
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(std::llround(seconds * 1e3));
}

// torchrun options that ringrun does not support, each with its alternative.
struct NotHere {
  const char* option;
  const char* instead;
};
constexpr std::array<NotHere, 10> kNotHere{{
    {"-m", "name the program: ringrun ... -- python3 -m MODULE"},
    {"--module", "name the program: ringrun ... -- python3 -m MODULE"},
    {"--run-path", "name the program: ringrun ... -- python3 FILE"},
    {"--start-method", "leave it out: a rank is always a new program"},
    {"--monitor-interval", "leave it out: the end of a rank is noticed immediately"},
    {"--role", "leave it out: all ranks have the same role"},
    {"--redirects", "--log-dir FOLDER writes both streams of each rank to files"},
    {"-r", "--log-dir FOLDER writes both streams of each rank to files"},
    {"-t", "--tee, without a number, shows both streams of each rank"},
    {"--local-addr", "--bind INTERFACE sets where node 0 listens"},
}};

// Replaces '_' with '-' in option names, because torchrun accepts --nproc_per_node. Rejects
// torchrun's options that ringrun lacks. Leaves the program's name and the words after it
// unchanged.
std::vector<std::string> with_hyphens(const CommandLine& app, int argc, char** argv) {
  std::vector<std::string> out{"ringrun"};
  bool options = true, value = false;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    options = options && word != "--" && (value || word.rfind('-', 0) == 0);
    if (options && !value) {
      const std::size_t end = std::min(word.find('='), word.size());
      if (word.rfind("--", 0) == 0)
        std::replace(word.begin(), word.begin() + static_cast<long>(end), '_', '-');
      const std::string name = word.substr(0, end);
      for (const NotHere& other : kNotHere)
        require(name != other.option, "torchrun's " + name + " is not supported: " + other.instead);
      value = app.takes_value(name) && end == word.size();
    } else {
      value = false;
    }
    out.push_back(std::move(word));
  }
  return out;
}

void settle_meeting(launch::LaunchOptions& o, const Meeting& meeting, bool address_given,
                    const std::string& port, bool port_given) {
  require(meeting.backend == "static" || meeting.backend == "c10d",
          "--rdzv-backend '" + meeting.backend + "': ringrun supports static and c10d");
  o.nodes_numbered = meeting.backend == "static";
  require(o.least_nodes == o.nodes || !o.nodes_numbered,
          "--nnodes " + std::to_string(o.least_nodes) + ":" + std::to_string(o.nodes) +
              ": nodes that may join and leave are numbered as they join: add --rdzv-backend c10d "
              "--rdzv-endpoint HOST:PORT, the same on all nodes");
  require(o.nodes == 1 || (o.nodes_numbered && o.max_restarts == 0) || o.port_file.empty(),
          "--port-file is for a job with one rendezvous: give --master-port, or with c10d "
          "--rdzv-endpoint HOST:PORT");
  if (!meeting.endpoint.empty()) {
    read_endpoint(o, meeting.endpoint, o.nodes_numbered ? kStaticPort : kC10dPort);
    return;
  }
  require(o.nodes_numbered || o.nodes == 1 || address_given,
          "--rdzv-backend c10d: give --rdzv-endpoint HOST:PORT, where the nodes meet, the same on "
          "all nodes; the ringrun on that host holds the rendezvous");
  const bool known = port_given || o.nodes == 1 || !o.port_file.empty();
  o.master_port = comm::tcp::parse_port("--master-port",
                                        known              ? port
                                        : o.nodes_numbered ? kStaticPort
                                                           : kC10dPort,
                                        true);
  require(
      o.nodes == 1 || o.master_port != 0 || !o.port_file.empty(),
      "several nodes need to know where node 0 listens: give --master-port, or --port-file on a "
      "shared file system");
}

bool read_options(launch::LaunchOptions& o, int argc, char** argv) {
  std::string ranks = "1", nodes = "1", master_port = "0", new_secret, conf;
  Meeting meeting{"static", ""};
  bool standalone = false, no_prefix = false, no_python = false;
  double join = 600, last_call = 5, exit = 300, grace = 30, quorum = kQuorumSeconds;
  CommandLine app(
      "ringrun [OPTIONS] [--] PROGRAM [ARGUMENTS]: starts the ranks of a program and supervises "
      "them.",
      "ringrun");
  app.leave_the_rest();
  app.group("Ranks");
  app.add_option("--nproc-per-node", ranks,
                 "ranks on this node; auto or cpu: one for each core, or "
                 "as many as a CPU quota allows");
  app.add_option("--nnodes", nodes,
                 "nodes of the job, each with its own ringrun; MIN:MAX: as many as join");
  app.add_option("--node-rank", o.node, "number of this node, from 0; not needed with c10d")
      ->check(whole(0, 1023));
  app.add_flag("--standalone", standalone, "one node, a free port on the loopback interface");

  app.add_option("--max-restarts", o.max_restarts,
                 "how often all ranks are restarted after a failure or the loss of a node")
      ->check(whole(0, 1'000'000));

  app.group("Meeting");
  auto* address = app.add_option("--master-addr", o.master_address, "node 0's address or name")
                      ->default_text("the loopback's");
  auto* port = app.add_option("--master-port", master_port,
                              "TCP port of the job's store on node 0; 0: a free one");
  app.add_option("--rdzv-backend", meeting.backend,
                 "static: node 0 is at --master-addr; c10d: nodes are numbered as they join");
  auto* endpoint =
      app.add_option(
             "--rdzv-endpoint", meeting.endpoint,
             "HOST[:PORT] where the nodes meet [--master-addr and --master-port]; port 29400 "
             "with c10d, else 29500")
          ->default_text("");
  app.add_option("--rdzv-id", o.job, "the job's name: nodes of another job are refused");
  app.add_option("--rdzv-conf", conf, "torchrun's join_timeout=S,last_call_timeout=S");
  app.add_option("--port-file", o.port_file,
                 "with port 0 and several nodes: node 0 writes the port into this file, which the "
                 "others read");
  app.add_option("--bind", o.bind,
                 "interface (eth0) or address that node 0 listens on [--master-addr]")
      ->default_text("");
  app.add_option("--secret-file", o.secret_file,
                 "file with the job's secret, 16 characters or more, that only you can read");
  app.add_flag("--no-secret", o.no_secret,
               "anyone who can reach the port may join and control the job");
  app.add_option("--make-secret", new_secret, "create such a file with a random secret, then exit");
  app.add_option("--join-timeout", join, "seconds to wait for the other nodes to arrive")
      ->check(seconds());
  app.add_option("--last-call", last_call,
                 "seconds to wait for more nodes after MIN of MIN:MAX have joined")
      ->check(real(0, kMostSeconds));
  app.add_option("--exit-timeout", exit,
                 "seconds to wait for the other nodes to end after this one")
      ->check(seconds());

  app.group("Lost ranks");
  app.add_flag(
      "--per-step", o.per_step,
      "restart a rank alone if it is killed or fails because of its device or its peers (exit "
      "codes 2, 3, 4, 7), while the others continue within their step: for programs with an option "
      "of this name, on one node. ringrun coordinates the ranks: if it ends, so does the job");
  app.add_option("--min-ranks", o.least_ranks,
                 "with --per-step: minimum number of ranks for a step [more than half]")
      ->default_text("")
      ->check(whole(1, 1024));
  app.add_option(
         "--quorum-timeout", quorum,
         "with --per-step: seconds that the ranks wait for a silent rank before they continue "
         "without it, or for --min-ranks ranks before they fail; must be longer than a step")
      ->check(seconds());

  app.group("Output");
  app.add_option("--log-dir", o.log_folder,
                 "new or empty folder for rank-R.out and rank-R.err, instead of the screen");
  app.add_flag("--tee", o.tee, "with --log-dir: write to the files and the screen");
  app.add_flag("--no-prefix", no_prefix, "print lines without the [rank] prefix");
  auto* grace_option = app.add_option("--grace", grace,
                                      "seconds between SIGTERM and SIGKILL [30; after a failure 5]")
                           ->default_text("")
                           ->check(real(0, kMostSeconds));
  app.add_flag("--no-python", no_python, "accepted for torchrun: ringrun always starts programs");
  app.footer(kFooter);

  const std::vector<std::string> words = with_hyphens(app, argc, argv);
  std::vector<const char*> pointers;
  for (const std::string& word : words) pointers.push_back(word.c_str());
  if (!app.parse(static_cast<int>(pointers.size()), pointers.data(), Speaker::everybody))
    return false;
  if (!new_secret.empty()) {
    comm::Secret::create_file(new_secret);
    return false;
  }

  o.command = app.rest();
  if (!o.command.empty() && o.command[0] == "--") o.command.erase(o.command.begin());
  require(!o.command.empty(), "no program to start; ringrun --help shows how");
  require(o.command[0].rfind('-', 0) != 0, app.unknown(o.command[0]));
  o.ranks_here = ranks_per_node(ranks);
  std::tie(o.least_nodes, o.nodes) = number_of_nodes(nodes);
  require(
      !standalone || (o.nodes == 1 && !address->given() && !port->given() && !endpoint->given()),
      "--standalone is for one node, which needs no --nnodes, --master-addr, --master-port or "
      "--rdzv-endpoint");
  if (standalone) meeting.backend = "static";
  settle_meeting(o, meeting, address->given(), master_port, port->given());
  require(!o.nodes_numbered || o.node < o.nodes,
          fmt::format("--node-rank {} is not one of {} nodes, numbered from 0", o.node, o.nodes));
  require(!o.no_secret || o.secret_file.empty(), "--no-secret and --secret-file: give only one");
  read_conf(conf, join, last_call);
  require(o.log_folder.empty() ? !o.tee : true, "--tee needs --log-dir");
  require(!o.tee || o.command[0].find_first_not_of("0123456789") != std::string::npos,
          "--tee takes no number: it shows both streams of every rank");
  o.prefix = !no_prefix;
  require(!o.per_step || (o.nodes == 1 && o.nodes_numbered),
          "--per-step is for one node; leave out --nnodes and --rdzv-backend");
  require(!o.per_step || o.max_restarts == 0,
          "--per-step restarts lost ranks without a new round; leave out --max-restarts");
  require(o.per_step || (o.least_ranks == 0 && quorum == kQuorumSeconds),
          "--min-ranks and --quorum-timeout need --per-step");
  if (o.least_ranks == 0) o.least_ranks = o.ranks_here / 2 + 1;
  require(
      o.least_ranks <= o.ranks_here,
      fmt::format("--min-ranks {} is more than --nproc-per-node {}", o.least_ranks, o.ranks_here));
  o.quorum_timeout = milliseconds(quorum);
  o.join_timeout = milliseconds(join);
  o.last_call = milliseconds(last_call);
  o.exit_timeout = milliseconds(exit);
  o.grace = milliseconds(grace);
  if (grace_option->given()) o.failure_grace = o.grace;
  return true;
}

}  // namespace
}  // namespace ringsmith::apps

int main(int argc, char** argv) {
  using namespace ringsmith;
  return run_main("ringrun", [&] {
    launch::LaunchOptions options;
    return apps::read_options(options, argc, argv) ? launch::launch(options) : 0;
  });
}
