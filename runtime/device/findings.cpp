#include "runtime/device/findings.hpp"

#include <algorithm>
#include <deque>
#include <iterator>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/device/capture.hpp"
#include "runtime/device/capture_guard.hpp"
#include "runtime/device/transfer.hpp"

namespace ringsmith::findings {

struct Check {
  explicit Check(Say text) : say(std::move(text)), block(Bytes(kBlocks * sizeof(Finding))) {
    clear();
  }
  [[nodiscard]] std::span<Finding> findings() const {
    return {reinterpret_cast<Finding*>(block.data()), kBlocks};
  }
  void clear() const { std::ranges::fill(findings(), Finding{kNone, 0}); }
  Say say;
  PinnedBlock block;
};

namespace {

// The checks' pinned memory is reused only after their kernels have run, because an entry remains
// in its list until then.
struct Launched {
  Checks checks;
  Event done;
};
using Queue = std::deque<Launched>;

// Checks of threads that have ended. Never destroyed, because threads may end after main().
struct OrphanedChecks {
  std::mutex mutex;
  Queue checks;
};
OrphanedChecks& orphans() {
  static auto* const all = new OrphanedChecks;
  return *all;
}

struct OfThread {
  Queue checks;
  Checks captured;
  OfThread() = default;
  OfThread(const OfThread&) = delete;
  OfThread& operator=(const OfThread&) = delete;
  ~OfThread() {
    if (checks.empty()) return;
    const std::scoped_lock lock(orphans().mutex);
    std::move(checks.begin(), checks.end(), std::back_inserter(orphans().checks));
  }
};
thread_local OfThread mine;

// Removes the completed checks up to the first that found an error, and returns its text.
std::optional<std::string> take_error(Queue& queue) {
  while (!queue.empty() && queue.front().done.has_happened()) {
    const Launched launched = std::move(queue.front());
    queue.pop_front();
    for (const std::shared_ptr<Check>& check : launched.checks) {
      const Finding found = std::ranges::min(check->findings(), {}, &Finding::position);
      if (found.position == kNone) continue;
      check->clear();  // a graph will use it again
      return check->say(found.position, found.value);
    }
  }
  return {};
}

}  // namespace

Pending::Pending(Say say) {
  if (!capture::active()) look();
  // The pinned memory may be new, or may have to be asked for: neither concerns captured work.
  const CaptureGuard beside_captures(cudaStreamCaptureModeRelaxed);
  check_ = std::make_shared<Check>(std::move(say));
}

Finding* Pending::findings() const { return check_->findings().data(); }

void Pending::launched() {
  if (capture::active())
    mine.captured.push_back(std::move(check_));
  else
    findings::launched({std::move(check_)}, Stream::current());
}

Checks take_captured() { return std::exchange(mine.captured, {}); }

void launched(const Checks& checks, const Stream& stream) {
  mine.checks.push_back({checks, Event::record(stream)});
}

void look() {
  std::optional<std::string> error = take_error(mine.checks);
  if (!error) {
    const std::scoped_lock lock(orphans().mutex);
    error = take_error(orphans().checks);
  }
  if (error) throw UsageError(*error);
}

}  // namespace ringsmith::findings

namespace ringsmith {

// Declared in stream.hpp; defined here, because the function also throws the findings.
void synchronize(Device device) {
  if (device.is_cpu()) return;
  Stream::current(device).synchronize();
  findings::look();
}

}  // namespace ringsmith
