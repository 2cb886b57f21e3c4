#include "runtime/comm/device/monitor.hpp"

#include "runtime/base/error.hpp"

namespace ringsmith::comm::cuda_ipc {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLook{1};          // between looks at the oldest operation
constexpr milliseconds kPeersLook{10};    // age of an operation from which peers are checked, too
constexpr milliseconds kLastWords{2000};  // for kernels to see `stop` and end

std::string describe(const KernelReport& t) {
  const auto what = [&]() -> std::string {
    const std::string seen =
        " (" + std::to_string(t.have) + ", waited for " + std::to_string(t.want) + ")";
    switch (t.awaited) {
      case Awaited::tail:
        return "a message from rank " + std::to_string(t.peer) + seen;
      case Awaited::head:
        return "rank " + std::to_string(t.peer) + " to take a message" + seen;
      case Awaited::packet:
        return "a packet from rank " + std::to_string(t.peer) + seen;
      case Awaited::arrival:
        return "rank " + std::to_string(t.peer) + " to arrive" + seen;
      default:
        return "nothing";
    }
  };
  return "kernel of rank " + std::to_string(t.rank) + ", block " + std::to_string(t.block) +
         ", step " + std::to_string(t.step) + " waited for " + what();
}

}  // namespace

Monitor::Monitor(Health& health, DevicePeers& device_peers, Device device, KernelReport* report)
    : health_(health), device_peers_(device_peers), device_(device), report_(report) {}

void Monitor::watch(std::shared_ptr<const DeviceOperation> operation) {
  const std::lock_guard lock(mutex_);
  launched_.push_back(std::move(operation));
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  if (launched_.size() == 1) changed_.notify_all();
}

void Monitor::run() {
  const DeviceGuard guard(device_);
  std::unique_lock lock(mutex_);
  std::uint64_t looked_at = 0;
  Clock::time_point since;
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !launched_.empty(); });
    if (launched_.empty() || kind_ != FailureKind::none) return;
    const auto operation = launched_.front();
    lock.unlock();
    if (operation->number() != looked_at) {
      looked_at = operation->number();
      since = Clock::now();
    }
    bool done = false;
    try {
      done = operation->done().has_happened();
      // The clock starts when the caller's stream has computed the data to send.
      if (!done && !operation->ready().has_happened()) since = Clock::now();
      const auto age = std::chrono::duration_cast<milliseconds>(Clock::now() - since);
      look_at(*operation, done, age);
    } catch (const Error& error) {
      fail(*operation, FailureKind::other, -1, error.what());
    }
    lock.lock();
    if (kind_ != FailureKind::none) {
      changed_.notify_all();
      return;
    }
    if (done) {
      launched_.pop_front();
      if (launched_.empty()) changed_.notify_all();
    } else {
      changed_.wait_for(lock, kLook);
    }
  }
}

bool Monitor::has_complained(const DeviceOperation& operation) const {
  return report_ != nullptr && has_written(*report_) && report_->operation <= operation.number();
}

void Monitor::look_at(const DeviceOperation& operation, bool done, milliseconds age) {
  if (has_complained(operation))
    return fail(operation, FailureKind::timeout, report_->peer,
                operation.call() + " has waited beyond its deadline");
  // A failing peer reports before it releases streams, so an operation that ends after the report
  // has failed.
  if (!done && age < kPeersLook) return;
  Health::Failed failed = done ? health_.look_for_report() : health_.look_for_failure(-1);
  if (!done && failed.kind == FailureKind::none && age >= health_.timeout()) {
    failed.kind = FailureKind::timeout;
    failed.culprit = device_peers_.find_laggard();
    failed.text =
        operation.call() + " has not ended " + std::to_string(health_.timeout().count()) +
        " ms after its data was ready (a longer --timeout, GroupOptions::timeout, helps if "
        "a rank is only slow). ";
    if (failed.culprit >= 0)
      failed.text +=
          "The stream of rank " + std::to_string(failed.culprit) + " has not reached it. ";
    failed.text += health_.wait_for_graph();
  }
  if (failed.kind == FailureKind::none) return;
  if (!done && operation.done().has_happened()) return;  // it has just ended; the next look decides
  fail(operation, failed.kind, failed.culprit, failed.text);
}

// Stops the kernels that still spin, so that the message can contain their report. Breaks the group
// before it releases the streams, because look_at() relies on that order.
void Monitor::fail(const DeviceOperation& operation, FailureKind kind, int culprit,
                   std::string text) {
  std::int64_t step = -1;
  if (report_ != nullptr) {
    SystemAtomic<std::uint32_t>(report_->stop).store(1, cuda::memory_order_relaxed);
    wait_for_last_words(operation);
    if (has_written(*report_)) {
      text += ". The " + describe(*report_);
      step = report_->step;
      if (culprit < 0) culprit = report_->peer;
    }
  }
  health_.record_failure(kind, culprit, text);
  device_peers_.release_waiters();
  const std::lock_guard lock(mutex_);
  kind_ = kind;
  text_ = text;
  failed_from_ = operation.number();
  where_ = where_of(operation, culprit);
  where_.step = step;
}

Where Monitor::where_of(const DeviceOperation& operation, int peer) const {
  Where where;
  where.rank = health_.rank();
  where.peer = peer;
  where.op = operation.call();
  where.sequence = operation.sequence();
  return where;
}

void Monitor::wait_for_last_words(const DeviceOperation& operation) {
  try {
    for (const auto end = Clock::now() + kLastWords;
         !operation.done().has_happened() && Clock::now() < end;)
      std::this_thread::sleep_for(kLook);
  } catch (const CudaError&) {
    // The device has failed, so nothing runs there any more.
  }
}

void Monitor::throw_if_failed(const DeviceOperation& operation) {
  const std::lock_guard lock(mutex_);
  if (operation.number() >= failed_from_) throw_failure(kind_, text_, where_);
}

void Monitor::wait_for(const DeviceOperation& operation) {
  constexpr int kSpins = 64;
  for (int turn = 0;; ++turn) {
    throw_if_failed(operation);
    if (operation.done().has_happened()) break;
    if (turn < kSpins)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  // The operation may have ended because of a failure that the monitor's thread has not found yet.
  {
    std::unique_lock lock(mutex_);
    if (ended_) return;
    if (has_complained(operation)) changed_.wait(lock, [&] { return kind_ != FailureKind::none; });
    const Health::Failed failed = health_.look_for_report();
    if (kind_ == FailureKind::none && failed.kind != FailureKind::none)
      throw_failure(failed.kind, failed.text, where_of(operation, failed.culprit));
  }
  throw_if_failed(operation);
}

void Monitor::stop() {
  std::unique_lock lock(mutex_);
  if (!stopping_) {
    changed_.wait(lock, [&] { return launched_.empty() || kind_ != FailureKind::none; });
    stopping_ = true;
    changed_.notify_all();
  }
  lock.unlock();
  if (thread_.joinable()) thread_.join();
  lock.lock();
  report_ = nullptr;
  ended_ = true;
}

void Monitor::give_up() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (report_ != nullptr)
      SystemAtomic<std::uint32_t>(report_->stop).store(1, cuda::memory_order_relaxed);
  }
  device_peers_.release_waiters();
}

}  // namespace ringsmith::comm::cuda_ipc
