#include "runtime/device/findings.hpp"

#include <algorithm>
#include <deque>
#include <iterator>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "runtime/base/error.hpp"

namespace ringsmith::findings {

namespace {

struct Launched {
  Say say;
  std::unique_ptr<PinnedBlock> block;
  Event done;
};
using Checks = std::deque<Launched>;

// Checks of threads that have ended. Never destroyed, because threads may end after main().
struct OrphanedChecks {
  std::mutex mutex;
  Checks checks;
};
OrphanedChecks& orphans() {
  static auto* const all = new OrphanedChecks;
  return *all;
}

struct OfThread {
  Checks checks;
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

std::span<Finding> findings_in(const PinnedBlock& block) {
  return {reinterpret_cast<Finding*>(block.data()), kBlocks};
}

// Removes the completed checks up to the first that found an error, and returns its text.
std::optional<std::string> take_error(Checks& checks) {
  while (!checks.empty() && checks.front().done.has_happened()) {
    const Launched check = std::move(checks.front());
    checks.pop_front();
    const Finding found = std::ranges::min(findings_in(*check.block), {}, &Finding::position);
    if (found.position != kNone) return check.say(found.position, found.value);
  }
  return {};
}

}  // namespace

Pending::Pending(Say say) : say_(std::move(say)) {
  look();
  block_ = std::make_unique<PinnedBlock>(Bytes(kBlocks * sizeof(Finding)));
  std::ranges::fill(findings_in(*block_), Finding{kNone, 0});
}

Finding* Pending::findings() const { return findings_in(*block_).data(); }

void Pending::launched() {
  const Stream stream = Stream::current();
  block_->release_after(stream);
  mine.checks.push_back({std::move(say_), std::move(block_), Event::record(stream)});
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
