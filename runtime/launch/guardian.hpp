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
#pragma once

#include <set>
#include <string>
#include <sys/types.h>

#include "runtime/base/deadline.hpp"
#include "runtime/base/process.hpp"

namespace ringsmith::launch {

class Guardian {
 public:
  Guardian();  // forks: while the program has one thread
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;
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

}  // namespace ringsmith::launch
