#include "runtime/device/driver_gate.hpp"

#include <condition_variable>
#include <mutex>

namespace ringsmith {

namespace {

// A std::shared_mutex would not do, because it may block a new reader while a writer waits: here
// the readers that hold the gate wait for the new reader.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  int launching = 0;     // threads with a JointLaunch
  bool calling = false;  // a thread with a DriverCall
};

// Never destroyed, because static objects may still free device memory.
Gate& gate() {
  static auto* const made = new Gate;
  return *made;
}

thread_local int held = 0;  // nesting depth in this thread, of both kinds together

}  // namespace

JointLaunch::JointLaunch() {
  if (held++ > 0) return;
  Gate& g = gate();
  std::unique_lock lock(g.mutex);
  g.changed.wait(lock, [&] { return !g.calling; });
  ++g.launching;
}

JointLaunch::~JointLaunch() {
  if (--held > 0) return;
  Gate& g = gate();
  {
    const std::scoped_lock lock(g.mutex);
    --g.launching;
  }
  g.changed.notify_all();
}

DriverCall::DriverCall() : holds_(held++ == 0) {
  if (!holds_) return;
  Gate& g = gate();
  std::unique_lock lock(g.mutex);
  g.changed.wait(lock, [&] { return !g.calling && g.launching == 0; });
  g.calling = true;
}

DriverCall::~DriverCall() {
  --held;
  if (!holds_) return;
  Gate& g = gate();
  {
    const std::scoped_lock lock(g.mutex);
    g.calling = false;
  }
  g.changed.notify_all();
}

}  // namespace ringsmith
