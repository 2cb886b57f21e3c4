// Where each process of a run says what it is doing, in memory that the driver's watchdog reads
// when a run does not end. Plain text and atomics: a process that is killed leaves its last line.
#pragma once

#include <atomic>
#include <string>

namespace kit {

struct Whereabouts {
  std::atomic<int> requests;  // to the folder, that are over
  std::atomic<bool> ended;
  char who[96];
  char what[96];
};

// Of this process.
Whereabouts& whereabouts();
// A new process's, taken by its parent before the fork.
Whereabouts& new_whereabouts(const std::string& who);
void be_at(Whereabouts& mine);  // in the child

// What this process does, as long as the object lives.
class Doing {
 public:
  explicit Doing(const std::string& what);
  ~Doing();
  Doing(const Doing&) = delete;
  Doing& operator=(const Doing&) = delete;
};

// One line a process that has not ended.
std::string describe_whereabouts();
// How many processes have asked the folder, without those whose name holds this.
int processes_that_asked(const std::string& but);

}  // namespace kit
