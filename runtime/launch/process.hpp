// Starting a rank: its variables, and a process in a group of its own that dies with its launcher.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <sys/types.h>
#include <vector>

#include "runtime/base/deadline.hpp"
#include "runtime/base/process.hpp"

namespace ringsmith::launch {

// What outlives the launcher for a moment: a small process that ends all ranks when the launcher is
// gone, whatever ended it.
//
// Each rank asks the kernel to be killed with the launcher (PR_SET_PDEATHSIG), but its own children
// are not covered by that: a rank that is a shell script would leave its program running. So each
// rank is the leader of a process group, and the guardian holds the list of groups and one end of a
// pipe. When the other end closes, it kills them.
//
// Anybody who may send us signals may stop or kill the guardian as well. The launcher waits for it
// nowhere without a limit, and keeps the same list: what the guardian does not do, it does itself.
class Guardian {
 public:
  Guardian();   // forks: while the program has one thread
  ~Guardian();  // kills what is still on the list; the guardian itself, too, if it does not end

  // In the launcher, once the process is there.
  void watch(pid_t group);
  void forget(pid_t group);
  // The same for a process about itself, safe between fork and exec.
  void watch_me() const;

  // A line on how it ended, once, if it has ended before its time.
  [[nodiscard]] std::string obituary();
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

// What ranks leave behind outside their groups (setsid, daemons), which must not live on into the
// next round. From its making on, the kernel gives orphans below this process to it.
class Orphans {
 public:
  Orphans();
  // Kills all but the guardian, and children that this process had before. Those that are still
  // there at the deadline.
  [[nodiscard]] std::set<pid_t> end(pid_t guardian, Deadline deadline) const;

 private:
  std::set<pid_t> spared_;
};

// Does any process of this group run that is not its first one?
[[nodiscard]] bool group_lives(pid_t group);

// A rank that runs.
struct Process {
  pid_t pid = -1;       // also the number of its process group
  Descriptor out, err;  // the reading ends of its streams
};

// The file that a shell would run under this name. UsageError if there is none.
[[nodiscard]] std::string find_program(const std::string& name);

// Descriptors of the launcher's; -1: none.
struct Inherited {
  int keep = -1;   // the program has it, too, under the same number
  int hurry = -1;  // when this is readable, nobody waits for the program to run
};

// Standard input is empty. From the thread that will live longest: the kernel kills the rank when
// the thread that started it ends. Its group is on the guardian's list before the program runs.
// Returns when the program runs, or after 10 s. Error if the kernel refuses.
[[nodiscard]] Process start_process(const std::string& path,
                                    const std::vector<std::string>& command,
                                    const std::vector<std::string>& environment, Guardian& guardian,
                                    const Inherited& inherited = {});

// A rank's place among all, as its launcher knows it.
struct RankPlace {
  int rank = 0, world = 1;              // of all ranks
  int local_rank = 0, local_world = 1;  // of those on this node
  int node = 0, nodes = 1;
  int round = 0;                       // how often the job's ranks were started before
  int restarts = 0, max_restarts = 0;  // of these, after a failure
  std::string job = "none";
};

// How its ranks find the job's store.
struct StorePlace {
  std::string address;
  std::uint16_t port = 0;
  std::string secret;
  std::string door = {};  // describe_door() of what the ranks inherit; "": none
  bool per_step = false;  // a coordinator is beside it
};

// The variables that a rank is started with; torchrun's names where there are such, so that what
// reads them elsewhere reads them here: `inherited` (NAME=value each), without what other launchers
// left in it, and with
//   RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE MASTER_ADDR MASTER_PORT
//   TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID RINGSMITH_ROUND
//   RINGSMITH_STORE RINGSMITH_SECRET, RINGSMITH_STORE_FD if there is a door
//   RINGSMITH_PER_STEP=1 if there is a coordinator beside it
//   OMP_NUM_THREADS=1 if it was not set and several ranks share the node
[[nodiscard]] std::vector<std::string> rank_environment(const std::vector<std::string>& inherited,
                                                        const RankPlace& place,
                                                        const StorePlace& store);

}  // namespace ringsmith::launch
