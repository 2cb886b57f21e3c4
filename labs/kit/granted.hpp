// Time that the machine has given to this process, by the rule of the judge
// (labs/course/granted.py): processor time counts, and time in which all threads sleep. Time in
// which a thread is ready to run, and another program has the processor, does not count. So a wait
// of a driver that is bounded by this clock ends the same way on a busy machine.
#pragma once

#include <chrono>
#include <thread>

namespace kit {

class Granted {
 public:
  Granted();
  // Seconds since the construction. Every call is a sample, for which the thread that calls does
  // not count: call it every few milliseconds.
  [[nodiscard]] double seconds();

 private:
  double last_, used_, total_ = 0;
};

// Seconds for which the calling thread has waited for a processor since it began.
[[nodiscard]] double queued_seconds();

// Waits until done() is true, but no longer than `most` of granted time. Returns done().
template <class Condition>
bool wait_at_most(std::chrono::duration<double> most, Condition done) {
  for (Granted clock; !done();) {
    if (clock.seconds() >= most.count()) return done();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Gives the other threads `time` to do what they are free to do.
inline void let_others_run(std::chrono::duration<double> time) {
  wait_at_most(time, [] { return false; });
}

}  // namespace kit
