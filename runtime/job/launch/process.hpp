// Starting a rank: its environment, and a process in its own group that dies with its launcher.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <sys/types.h>
#include <vector>

#include "runtime/base/deadline.hpp"
#include "runtime/base/process.hpp"

namespace ringsmith::launch {

// A small process that outlives the launcher and kills all ranks when the launcher is gone, for
// whatever reason.
//
// Each rank asks the kernel to kill it when the launcher dies (PR_SET_PDEATHSIG), but that does not
// cover the rank's own children: a rank that is a shell script would leave its program running.
// Therefore each rank leads a process group, and the guardian holds the list of groups and one end
// of a pipe. When the other end closes, the guardian kills the groups.
//
// The guardian may be stopped or killed. Therefore the launcher never waits for it without a limit,
// and keeps the same list to kill the groups itself.
class Guardian {
 public:
  Guardian();   // forks: call it while the program has one thread
  ~Guardian();  // kills the groups still listed, then the guardian if it does not end

  void watch(pid_t group);
  void forget(pid_t group);
  // Like watch(), for the calling process; safe between fork and exec.
  void watch_me() const;

  // Returns, once, how the guardian ended, if it ended too early.
  [[nodiscard]] std::string exit_report();
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  void tell(pid_t message) const;
  [[nodiscard]] bool has_ended(Deadline deadline);

  std::set<pid_t> groups_;
  Descriptor pipe_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false, told_ = false;
};

// Kills processes that ranks leave behind outside their groups (setsid, daemons). Once this object
// exists, the kernel makes this process the parent of its orphaned descendants.
class Orphans {
 public:
  Orphans();
  // Kills all children except the guardian and those that existed before this object. Returns the
  // processes that still exist at the deadline.
  [[nodiscard]] std::set<pid_t> end(pid_t guardian, Deadline deadline) const;

 private:
  std::set<pid_t> spared_;
};

// True if any process of this group other than its leader is running.
[[nodiscard]] bool group_lives(pid_t group);

struct Process {
  pid_t pid = -1;       // also the number of its process group
  Descriptor out, err;  // read ends of its streams
};

// The file that a shell would run under this name. Throws UsageError if there is none.
[[nodiscard]] std::string find_program(const std::string& name);

// Descriptors of the launcher; -1: none.
struct Inherited {
  int keep = -1;   // inherited by the program, under the same number
  int hurry = -1;  // once readable, start_process() no longer waits for the exec
};

// Starts the program with empty standard input. Call it from the thread that lives longest: the
// kernel kills the rank when the thread that started it ends. Returns when the program runs, when
// `inherited.hurry` is readable, or after 10 s. Throws ResourceError if fork fails, UsageError if
// the program cannot be run.
[[nodiscard]] Process start_process(const std::string& path,
                                    const std::vector<std::string>& command,
                                    const std::vector<std::string>& environment, Guardian& guardian,
                                    const Inherited& inherited = {});

struct RankPlace {
  int rank = 0, world = 1;              // of all ranks
  int local_rank = 0, local_world = 1;  // among the ranks on this node
  int node = 0, nodes = 1;
  int round = 0;                       // rounds before this one
  int restarts = 0, max_restarts = 0;  // how many of these rounds failed, and the limit
  std::string job = "none";
};

struct StorePlace {
  std::string address;
  std::uint16_t port = 0;
  std::string secret;
  std::string door = {};  // describe_door() of the descriptor that the ranks inherit; "": none
  bool per_step = false;  // the store has a coordinator
};

// Returns the environment of a rank: `inherited` (each NAME=value), without the variables that
// would give the rank another place, and with the following, under torchrun's names where torchrun
// has them:
//   RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE MASTER_ADDR MASTER_PORT
//   TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID RINGSMITH_ROUND
//   RINGSMITH_STORE RINGSMITH_SECRET, RINGSMITH_STORE_FD if there is a door
//   RINGSMITH_PER_STEP=1 if the store has a coordinator
//   OMP_NUM_THREADS=1 if it was not set and several ranks share the node
[[nodiscard]] std::vector<std::string> rank_environment(const std::vector<std::string>& inherited,
                                                        const RankPlace& place,
                                                        const StorePlace& store);

}  // namespace ringsmith::launch
