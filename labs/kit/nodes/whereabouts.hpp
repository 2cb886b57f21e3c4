// Each process of a run publishes its current activity in shared memory, which the driver's
// watchdog reads if the run does not end. The last entry of a killed process remains.
#pragma once

#include <atomic>
#include <string>

namespace kit {

struct Whereabouts {
  std::atomic<int> requests;  // completed requests to the folder
  std::atomic<bool> ended;
  char who[96];
  char what[96];
};

Whereabouts& whereabouts();
// Allocates the entry of a new process; the parent calls this before the fork.
Whereabouts& new_whereabouts(const std::string& who);
void be_at(Whereabouts& mine);  // called in the child

class Doing {
 public:
  explicit Doing(const std::string& what);
  ~Doing();
  Doing(const Doing&) = delete;
  Doing& operator=(const Doing&) = delete;
};

std::string describe_whereabouts();
// Returns the number of processes that have used the folder and whose names do not contain `but`.
int processes_that_asked(const std::string& but);

}  // namespace kit
