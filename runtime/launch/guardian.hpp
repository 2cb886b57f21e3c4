// What outlives the launcher for a moment: a small process that ends all ranks when the launcher is
// gone, whatever ended it.
//
// Each rank asks the kernel to be killed with the launcher (PR_SET_PDEATHSIG), but its own children
// are not covered by that: a rank that is a shell script would leave its program running. So each
// rank is the leader of a process group, and the guardian holds the list of groups and one end of a
// pipe. When the other end closes, it kills them.
#pragma once

#include <sys/types.h>

#include "runtime/base/descriptor.hpp"

namespace ringsmith::launch {

class Guardian {
 public:
  Guardian();  // forks: while the program has one thread
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;
  ~Guardian();  // kills what is still on the list, and waits for that

  void watch(pid_t group);  // safe between fork and exec
  void forget(pid_t group);

 private:
  void tell(pid_t message);
  Descriptor pipe_;
  pid_t pid_ = -1;
};

}  // namespace ringsmith::launch
