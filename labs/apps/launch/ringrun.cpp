// ringrun: starts N ranks of a program on this host, or on each of several, and stays until all
// of them have ended. The options are torchrun's where it has them.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <vector>

#include "labs/apps/common/command_line.hpp"
#include "labs/apps/common/processor.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/bootstrap/store/secret.hpp"
#include "runtime/comm/transport/tcp/address.hpp"
#include "runtime/launch/launch.hpp"

namespace ringsmith::apps {
namespace {

constexpr double kQuorumSeconds = 60;

constexpr const char* kFooter = R"(
What follows the program's name belongs to it. One host:
  ringrun --standalone --nproc-per-node 4 -- build/release/bin/train_gpt --steps 100
Two hosts, the same secret file on both (node 1 with --node-rank 1):
  ringrun --make-secret job.secret
  ringrun --nnodes 2 --node-rank 0 --nproc-per-node 4 --master-addr 10.0.0.1 --master-port 29500
          --secret-file job.secret -- build/release/bin/all_reduce_perf
The secret keeps strangers out of the job; what its ranks send between hosts is neither encrypted
nor authenticated: the network must be one that you trust.

The first rank that fails ends all others, on all nodes: SIGTERM, after --grace SIGKILL. The last
lines printed say which rank it was, when, how, and what it printed last. A rank that ends well
before the others is no failure. SIGTERM, SIGINT, SIGHUP and SIGQUIT are passed on and end the job
(twice: at once); SIGUSR1 and SIGUSR2 are passed on. When ringrun is killed, so are its ranks.

With --per-step a lost rank is started again, alone, and the others go on. If it is lost 5 times in a
row within 10 s of its start, it ends the job, as do other failures.

Environment of every rank:
  RANK, WORLD_SIZE              among all ranks, from 0
  LOCAL_RANK, LOCAL_WORLD_SIZE  among those of its node
  GROUP_RANK, GROUP_WORLD_SIZE  its node among the nodes
  MASTER_ADDR, MASTER_PORT      where ringrun's store listens
  RINGSMITH_STORE               'launcher': there is a store there; the ranks need none of their own
  RINGSMITH_SECRET              what they must know to use it
  RINGSMITH_STORE_FD            on node 0, an inherited socket by which they reach it past everybody
                                else; a program that does not find it open there uses the address
  RINGSMITH_PER_STEP            1 with --per-step: ringrun coordinates the ranks
  OMP_NUM_THREADS               1, unless it is set or the rank is alone on its node
Environment that ringrun reads:
  RINGSMITH_SECRET, RINGSMITH_SECRET_FILE
                                the job's secret, without --secret-file; on one node it makes one
  PATH                          where the program is looked for

Exit codes: 0 all ranks ended well; that of the rank that failed first (128 + signal if a signal
ended it); 128 + signal if one ended ringrun; 1 another node's ringrun was stopped, or a file of
--log-dir could not be written to its end, 3 another node is lost, 4 a deadline passed, 6 wrong
options.)";

int whole_number(const std::string& option, const std::string& text, int least, int most) {
  char* end = nullptr;
  const long n = std::strtol(text.c_str(), &end, 10);
  require(!text.empty() && *end == '\0' && n >= least && n <= most,
          fmt::format("{} '{}' is not a whole number from {} to {}", option, text, least, most));
  return static_cast<int>(n);
}

int ranks_per_node(const std::string& text) {
  if (text == "auto" || text == "cpu") return allowed_cores();
  require(!text.empty() && text.find_first_not_of("0123456789") == std::string::npos,
          "--nproc-per-node '" + text +
              "': give a number, or auto or cpu (one rank for each core "
              "that this process may use)");
  return whole_number("--nproc-per-node", text, 1, 1024);
}

// "2", or torchrun's "2:2"; a range would need ranks that come and go.
int number_of_nodes(const std::string& text) {
  const std::size_t colon = text.find(':');
  const int nodes = whole_number("--nnodes", text.substr(0, colon), 1, 1024);
  require(colon == std::string::npos ||
              whole_number("--nnodes", text.substr(colon + 1), 1, 1024) == nodes,
          "--nnodes '" + text + "': the number of nodes must be fixed; give one number");
  return nodes;
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(std::llround(seconds * 1e3));
}

// torchrun's users write --nproc_per_node. Only options are touched, not what follows the program.
std::vector<std::string> with_hyphens(int argc, char** argv) {
  std::vector<std::string> out;
  bool options = true;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (word == "--" || (i > 1 && word[0] != '-' && argv[i - 1][0] != '-')) options = false;
    if (options && word.rfind("--", 0) == 0)
      std::replace(word.begin(),
                   word.begin() + static_cast<long>(std::min(word.find('='), word.size())), '_',
                   '-');
    out.push_back(std::move(word));
  }
  return out;
}

// False if there is nothing to launch any more.
bool read_options(launch::LaunchOptions& o, int argc, char** argv) {
  std::string ranks = "1", nodes = "1", master_port = "0", new_secret;
  bool standalone = false, no_prefix = false;
  double join = 600, exit = 300, grace = 5, quorum = kQuorumSeconds;
  CLI::App app(
      "ringrun [OPTIONS] [--] PROGRAM [ARGUMENTS]: starts ranks of a program, and watches over "
      "them.",
      "ringrun");
  app.set_help_flag("-h,--help", "this text");
  app.prefix_command();
  app.option_defaults()->always_capture_default()->take_last();
  app.option_defaults()->group("Ranks");
  app.add_option("--nproc-per-node", ranks, "ranks on this node; auto or cpu: one for each core");
  app.add_option("--nnodes", nodes, "nodes of the job, each with a ringrun of its own");
  app.add_option("--node-rank", o.node, "which of them this is, from 0")->check(whole(0, 1023));
  app.add_flag("--standalone", standalone, "one node, a free port on the loopback interface");

  app.option_defaults()->group("Meeting");
  auto* address = app.add_option("--master-addr", o.master_address, "node 0's address or name")
                      ->default_str("the loopback's");
  auto* port = app.add_option("--master-port", master_port,
                              "TCP port of the job's store on node 0; 0: a free one");
  app.add_option("--port-file", o.port_file,
                 "with port 0 and several nodes: node 0 writes the port into this file, which the "
                 "others read");
  app.add_option("--bind", o.bind,
                 "interface (eth0) or address that node 0 listens on [--master-addr]")
      ->default_str("");
  app.add_option("--secret-file", o.secret_file,
                 "file with the job's secret, 16 characters or more, that only you can read");
  app.add_option("--make-secret", new_secret, "only make such a file, then stop");
  app.add_option("--join-timeout", join, "seconds to wait for the other nodes to come")
      ->check(seconds());
  app.add_option("--exit-timeout", exit,
                 "seconds to wait for the other nodes to end after this one")
      ->check(seconds());

  app.option_defaults()->group("Lost ranks");
  app.add_flag(
      "--per-step", o.per_step,
      "a rank that is killed, or ends because of its device or its peers (exit codes 2, 3, "
      "4), is started again alone, and the others go on within their step: for programs "
      "with an option of that name, on one node. ringrun coordinates them: if it ends, so "
      "does the job");
  app.add_option("--min-ranks", o.least_ranks,
                 "with --per-step: fewer make no step [more than half]")
      ->default_str("")
      ->check(whole(1, 1024));
  app.add_option("--quorum-timeout", quorum,
                 "with --per-step: seconds that the ranks wait for one that is silent, and then go "
                 "on without it, or for --min-ranks of them, and then fail; longer than a step")
      ->check(seconds());

  app.option_defaults()->group("Output");
  app.add_option("--log-dir", o.log_folder,
                 "new or empty folder: rank-R.out and rank-R.err instead of the screen");
  app.add_flag("--tee", o.tee, "with --log-dir: files and screen");
  app.add_flag("--no-prefix", no_prefix, "show lines without the [rank] in front");
  app.add_option("--grace", grace, "seconds between SIGTERM and SIGKILL")
      ->check(real(0, kMostSeconds));
  app.footer(kFooter);

  std::vector<std::string> words = with_hyphens(argc, argv);
  words.insert(words.begin(), "ringrun");
  std::vector<const char*> pointers;
  for (const std::string& word : words) pointers.push_back(word.c_str());
  if (!parse_command_line(app, static_cast<int>(pointers.size()), pointers.data(),
                          Speaker::everybody))
    return false;
  if (!new_secret.empty()) {
    comm::Secret::create_file(new_secret);
    return false;
  }

  o.command = app.remaining();
  if (!o.command.empty() && o.command[0] == "--") o.command.erase(o.command.begin());
  require(!o.command.empty(), "no program to start; ringrun --help shows how");
  require(o.command[0].rfind('-', 0) != 0,
          "unknown option '" + o.command[0] + "'; ringrun --help lists the options");
  o.ranks_here = ranks_per_node(ranks);
  o.nodes = number_of_nodes(nodes);
  require(o.node < o.nodes, fmt::format("--node-rank {} is not one of {} nodes, which count from 0",
                                        o.node, o.nodes));
  require(!standalone || (o.nodes == 1 && address->count() == 0 && port->count() == 0),
          "--standalone is for one node, which needs no --nnodes, --master-addr or --master-port");
  o.master_port = comm::tcp::parse_port("--master-port", master_port, true);
  require(
      o.nodes == 1 || o.master_port != 0 || !o.port_file.empty(),
      "several nodes need to know where node 0 listens: give --master-port, or --port-file on a "
      "shared file system");
  require(o.log_folder.empty() ? !o.tee : true, "--tee needs --log-dir");
  o.prefix = !no_prefix;
  require(!o.per_step || o.nodes == 1, "--per-step is for one node; leave out --nnodes");
  require(o.per_step || (o.least_ranks == 0 && quorum == kQuorumSeconds),
          "--min-ranks and --quorum-timeout go with --per-step");
  if (o.least_ranks == 0) o.least_ranks = o.ranks_here / 2 + 1;
  require(
      o.least_ranks <= o.ranks_here,
      fmt::format("--min-ranks {} is more than --nproc-per-node {}", o.least_ranks, o.ranks_here));
  o.quorum_timeout = milliseconds(quorum);
  o.join_timeout = milliseconds(join);
  o.exit_timeout = milliseconds(exit);
  o.grace = milliseconds(grace);
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
