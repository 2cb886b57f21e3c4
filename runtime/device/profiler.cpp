#include "runtime/device/profiler.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/base/tracer.hpp"

namespace ringsmith::profile {

namespace {

constexpr double kNsPerSecond = 1e9;
constexpr std::size_t kMostPending = 1 << 12;  // kernels; then the host waits for all of them
constexpr int kLooks = 5;                      // clock comparisons, of which the closest is used

struct PendingKernel {
  const char* name;  // name of its operation
  Event start, stop;
  KernelWork work;
};

// A point in time on both the GPU's and the host's clock.
struct Moment {
  Event event;
  std::int64_t host_ns = 0;
  std::int32_t track = 0;
};

struct Totals {
  std::mutex mutex;  // guards everything below
  std::unordered_map<const char*, Row> rows;
  std::vector<PendingKernel> pending;
  std::map<int, Moment> moments;  // by GPU
  std::set<std::string> names;
};

// Never destroyed: threads may record until the very end of the process.
Totals& totals() {
  static auto* instance = new Totals;
  return *instance;
}

thread_local Operation* innermost = nullptr;

trace::Arg size_of(const KernelWork& work) {
  return work.flop > 0 ? trace::Arg{"flop", static_cast<std::int64_t>(work.flop)}
                       : trace::Arg{"bytes", static_cast<std::int64_t>(work.bytes)};
}

void count(const char* name, std::int64_t calls, std::int64_t host_ns, const KernelWork& work) {
  Totals& t = totals();
  const std::lock_guard lock(t.mutex);
  Row& row = t.rows[name];
  row.calls += calls;
  row.host_ns += host_ns;
  row.work.flop += work.flop;
  row.work.bytes += work.bytes;
}

// Compares the clocks. An idle GPU reaches an event between two readings of the host's clock; of
// several tries, the one with the closest readings is returned.
Moment moment_of(Device device, std::int32_t track) {
  Moment out;
  out.track = track;
  std::int64_t closest = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < kLooks; ++i) {
    const std::int64_t before = trace::now_ns();
    Event event = Event::record(Stream::current(device), Event::Timing::on);
    event.synchronize();
    const std::int64_t apart = trace::now_ns() - before;
    if (apart >= closest) continue;
    closest = apart;
    out.event = std::move(event);
    out.host_ns = before + apart / 2;
  }
  return out;
}

void settle_locked(Totals& t) {
  if (t.pending.empty()) return;
  for (const PendingKernel& k : t.pending) {
    k.stop.synchronize();
    const Moment& moment = t.moments.at(k.start.device().index);
    const auto after = [&](const Event& event) {
      return static_cast<std::int64_t>(kNsPerSecond * seconds_between(moment.event, event));
    };
    const std::int64_t begin = after(k.start), end = std::max(begin, after(k.stop));
    t.rows[k.name].device_ns += end - begin;
    trace::record(k.name, trace::Category::operation, moment.host_ns + begin, moment.host_ns + end,
                  size_of(k.work), moment.track);
  }
  t.pending.clear();
  // Later kernels are measured from a recent moment: the difference of two events is a float, which
  // loses precision as it grows.
  for (auto& [gpu, moment] : t.moments) moment = moment_of(Device::cuda(gpu), moment.track);
}

}  // namespace

void enable(bool on) { detail::on.store(on, std::memory_order_relaxed); }

void settle() {
  Totals& t = totals();
  const std::lock_guard lock(t.mutex);
  settle_locked(t);
}

std::vector<Row> take_rows() {
  Totals& t = totals();
  const std::lock_guard lock(t.mutex);
  settle_locked(t);
  std::map<std::string, Row> by_name;  // equal names may be different literals
  for (auto& [name, row] : t.rows) {
    Row& sum = by_name[name];
    sum.name = name;
    sum.calls += row.calls;
    sum.host_ns += row.host_ns;
    sum.device_ns += row.device_ns;
    sum.work.flop += row.work.flop;
    sum.work.bytes += row.work.bytes;
  }
  t.rows.clear();
  std::vector<Row> out;
  for (auto& [name, row] : by_name) out.push_back(std::move(row));
  std::ranges::stable_sort(out, std::greater(),
                           [](const Row& row) { return std::pair(row.device_ns, row.host_ns); });
  return out;
}

const char* lasting(const std::string& name) {
  Totals& t = totals();
  const std::lock_guard lock(t.mutex);
  return t.names.insert(name).first->c_str();
}

void Operation::begin(const char* name) {
  name_ = name;
  outer_ = std::exchange(innermost, this);
  begin_ns_ = trace::now_ns();
}

void Operation::end() {
  const std::int64_t end_ns = trace::now_ns();
  innermost = outer_;
  if (outer_ != nullptr) outer_->inside_ns_ += end_ns - begin_ns_;
  count(name_, 1, end_ns - begin_ns_ - inside_ns_, work_);
  trace::record(name_, trace::Category::operation, begin_ns_, end_ns, size_of(work_));
}

void KernelScope::begin(const char* name, Device device, const KernelWork& work) {
  alone_ = innermost == nullptr;
  name_ = alone_ ? name : innermost->name_;
  work_ = work;
  if (!alone_) {
    innermost->work_.flop += work.flop;
    innermost->work_.bytes += work.bytes;
  }
  if (device.is_cuda()) {
    Totals& t = totals();
    const std::lock_guard lock(t.mutex);
    if (t.pending.size() >= kMostPending) settle_locked(t);
    if (!t.moments.contains(device.index))
      t.moments[device.index] = moment_of(device, trace::add_track(device.str() + " operations"));
    start_ = Event::record(Stream::current(device), Event::Timing::on);
  }
  begin_ns_ = trace::now_ns();
}

void KernelScope::end() {
  if (alone_) {
    const std::int64_t end_ns = trace::now_ns();
    count(name_, 1, end_ns - begin_ns_, work_);
    trace::record(name_, trace::Category::operation, begin_ns_, end_ns, size_of(work_));
  }
  if (!start_.defined()) return;
  Totals& t = totals();
  const std::lock_guard lock(t.mutex);
  try {
    Event stop = Event::record(Stream::current(start_.device()), Event::Timing::on);
    t.pending.push_back({name_, std::move(start_), std::move(stop), work_});
  } catch (const Error&) {  // the GPU has failed; the next call that waits for it will report that
  }
}

}  // namespace ringsmith::profile
