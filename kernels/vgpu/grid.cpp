#include "kernels/vgpu/grid.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "kernels/vgpu/block.hpp"
#include "kernels/vgpu/device.hpp"
#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/order.hpp"
#include "kernels/vgpu/queue.hpp"
#include "kernels/vgpu/rights.hpp"
#include "kernels/vgpu/settings.hpp"

namespace vgpu {

namespace {

// Number of OS threads that share the blocks of a grid under ThreadSanitizer. Grids of large blocks
// get fewer, because the detector supports only about 8,000 threads in total.
constexpr std::uint64_t kTsanShares = 8, kTsanThreads = 2048;
// Below this number of CUDA threads, waking a helper costs more than it saves.
constexpr std::uint64_t kWorthSharing = 16 << 10;

std::uint64_t volume(dim3 d) { return std::uint64_t{d.x} * d.y * d.z; }

unsigned shares_for(std::uint64_t blocks, std::uint64_t threads) {
  if (!kTsan) return 1;
  const auto most = std::clamp<std::uint64_t>(kTsanThreads / threads, 2, kTsanShares);
  return static_cast<unsigned>(std::min(blocks, most));
}

}  // namespace

Permutation::Permutation(std::uint64_t n, std::uint64_t random) : n_(n) {
  if (n <= 1) return;
  offset_ = random % n;
  scale_ = 1 + (random >> 32) % n;
  while (std::gcd(scale_, n) != 1) ++scale_;
  scale_ %= n;
}

Grid::Grid(Call call_, dim3 grid_, dim3 block_, std::size_t shared_bytes_, Queue& queue_,
           std::uint64_t number_)
    : call(std::move(call_)),
      grid(grid_),
      block(block_),
      shared_bytes(shared_bytes_),
      queue(queue_),
      number(number_),
      blocks_(volume(grid_)),
      shares_(shares_for(blocks_, volume(block_))),
      order_(blocks_, Random(number_).next()),
      next_(shares_) {
  for (unsigned s = 0; s < shares_; ++s) next_[s] = s;
}

// Declares that all CUDA threads end before the arguments are destroyed. The last owner of the
// arguments is this grid or the host, which has its own copy of the call. May run on a helper that
// was too late for a block.
Grid::~Grid() {
  declare_after(&end);
  declare_before(const_cast<void*>(call.arguments.get()));
}

// Declares nothing if the caller is Quiet; then ~Grid() has declared the order on the same thread.
void outlived(const void* arguments) {
  const Quiet quiet;
  declare_after(const_cast<void*>(arguments));
}

std::optional<std::uint64_t> Grid::take(unsigned share) {
  const std::uint64_t i = next_[share].fetch_add(shares_, std::memory_order_relaxed);
  if (i >= blocks_) return {};
  return order_(i);
}

void Grid::finished_one() {
  const std::scoped_lock lock(mutex_);
  if (++done_ == blocks_) all_done_.notify_all();
}

void Grid::serve(unsigned share) {
  // A helper that is too late to get a block must not use the queue, which may be gone.
  std::optional<std::uint64_t> block_number = take(share);
  if (!block_number) return;
  BlockRunner& runner = BlockRunner::mine();
  const DeviceRights rights(queue.device().keys());
  Device::set_current(queue.device().index());  // for calls by the kernel
  for (; block_number; block_number = take(share)) {
    {
      const Residency::Place place(queue.device().residency());
      runner.run(*this, share, *block_number);
    }
    finished_one();
  }
}

void Grid::relieve(unsigned share) {
  if (next_[share].load(std::memory_order_relaxed) >= blocks_) return;
  queue.helpers().start([self = shared_from_this(), share] { self->serve(share); });
}

Queue* Grid::child_stream() {
  const std::scoped_lock lock(mutex_);
  if (child_stream_ == nullptr) child_stream_ = Queue::create(queue.device(), Queue::Kind::free);
  return child_stream_.get();
}

void Grid::waits_for(Queue& stream) {
  if (&stream == &queue) return;  // runs later in the grid's own stream
  const std::scoped_lock lock(mutex_);
  if (std::none_of(children_.begin(), children_.end(),
                   [&](const auto& child) { return child.get() == &stream; }))
    children_.push_back(stream.shared_from_this());
}

void Grid::wait_for_children() {
  for (const auto& child : children_) child->synchronize();
  if (child_stream_ != nullptr) child_stream_->close();
}

std::string Grid::describe() const {
  return "kernel " + (call.name != nullptr ? call.name : describe_function(call.function)) +
         " in " + queue.name();
}

void Grid::run() {
  Helpers& helpers = queue.helpers();
  for (unsigned share = 1; share < shares_; ++share)
    helpers.start([self = shared_from_this(), share] { self->serve(share); });
  if (shares_ == 1 && blocks_ > 1 && blocks_ * volume(block) >= kWorthSharing) {
    const auto spare = static_cast<std::uint64_t>(Settings::get().workers - 1);
    for (std::uint64_t h = 0; h < std::min(blocks_ - 1, spare); ++h)
      if (!helpers.offer([self = shared_from_this()] { self->serve(0); })) break;
  }
  serve(0);
  std::unique_lock lock(mutex_);
  all_done_.wait(lock, [this] { return done_ == blocks_; });
}

namespace {

constexpr int kMostThreads = 1024;  // blocks that can be resident simultaneously

// Never destroyed, because the helpers' threads run until the process ends.
struct All {
  std::mutex mutex;
  std::vector<Helpers*> idle;
  Helpers shared;
};
All& all() {
  static auto* one = new All;
  return *one;
}

}  // namespace

Helpers& Helpers::lend() {
  if (!kTsan) return all().shared;
  const std::scoped_lock lock(all().mutex);
  if (all().idle.empty()) return *new Helpers;
  Helpers* helpers = all().idle.back();
  all().idle.pop_back();
  return *helpers;
}

void Helpers::give_back(Helpers& helpers) {
  if (!kTsan) return;
  const std::scoped_lock lock(all().mutex);
  all().idle.push_back(&helpers);
}

void Helpers::start(std::function<void()> job) {
  const std::scoped_lock lock(mutex_);
  push(std::move(job));
}

bool Helpers::offer(std::function<void()> job) {
  const std::scoped_lock lock(mutex_);
  if (jobs_.size() >= waiting_ && threads_ >= Settings::get().workers - 1) return false;
  push(std::move(job));
  return true;
}

void Helpers::push(std::function<void()> job) {
  jobs_.push_back(std::move(job));
  if (jobs_.size() <= waiting_) {
    wake_.notify_one();
    return;
  }
  if (threads_ == kMostThreads)
    fatal("more than " + std::to_string(kMostThreads) +
          " blocks wait for each other: use a smaller grid if all its blocks must run together");
  ++threads_;
  std::thread([this] { work(); }).detach();
}

void Helpers::work() {
  const Quiet quiet;
  std::unique_lock lock(mutex_);
  for (;;) {
    while (jobs_.empty()) {
      ++waiting_;
      wake_.wait(lock);
      --waiting_;
    }
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace vgpu
