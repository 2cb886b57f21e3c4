#include "kernels/vgpu/block.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <sys/mman.h>

#include "kernels/vgpu/device.hpp"
#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/order.hpp"
#include "kernels/vgpu/queue.hpp"
#include "kernels/vgpu/settings.hpp"

namespace vgpu {

constinit thread_local ThreadView* current_thread = nullptr;
constinit thread_local BlockView* current_block = nullptr;
constinit thread_local BlockRunner* active_runner = nullptr;

BlockRunner& BlockRunner::mine() {
  // The runner is on the heap, because its 33 KiB exceed the thread-local space of libraries loaded
  // later.
  static thread_local const auto runner = std::make_unique<BlockRunner>();
  return *runner;
}

BlockRunner::BlockRunner() : fibers_(live), threads_(1024), order_(1024) {
  idle_.reserve(1024);
  used_.reserve(1024);
  ready_.reserve(2048);
  spinning_.reserve(1024);
  void* space = ::mmap(nullptr, kMostShared + guard_page(), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) fatal("no memory for a block's dynamic shared memory");
  dynamic_ = static_cast<std::byte*>(space);
  ::mprotect(dynamic_ + kMostShared, guard_page(), PROT_NONE);
}

BlockRunner::~BlockRunner() { ::munmap(dynamic_, kMostShared + guard_page()); }

void BlockRunner::run(Grid& grid, unsigned share, std::uint64_t block_number) {
  grid_ = &grid;
  share_ = share;
  random_ = Random(grid.number << 32 ^ block_number);
  const dim3 block = grid.block;
  view_.index = {static_cast<unsigned>(block_number % grid.grid.x),
                 static_cast<unsigned>(block_number / grid.grid.x % grid.grid.y),
                 static_cast<unsigned>(block_number / grid.grid.x / grid.grid.y)};
  view_.block_dim = block;
  view_.grid_dim = grid.grid;
  // Dynamic shared memory ends at a page that faults and starts at a multiple of 16 bytes.
  view_.dynamic_shared = dynamic_ + kMostShared - (grid.shared_bytes + 15) / 16 * 16;
  async_.begin_block(static_cast<std::byte*>(view_.dynamic_shared), grid.shared_bytes,
                     shared_address(view_.dynamic_shared));
  count_ = block.x * block.y * block.z;
  begun_ = finished_ = arrived_ = 0;
  ready_.clear();
  next_ready_ = 0;
  spinning_.clear();
  progress_ = true;

  // Few fibers live simultaneously, because warps begin one after another. The orders of warps and
  // of lanes are seeded.
  const unsigned warps = (count_ + 31) / 32;
  unsigned n = 0;
  Permutation(warps, random_.next()).each([&](std::uint64_t w) {
    const auto warp = static_cast<unsigned>(w);
    const unsigned lanes = warp + 1 < warps ? 32 : count_ - 32 * (warps - 1);
    Permutation(lanes, random_.next()).each([&](std::uint64_t lane) {
      order_[n++] = static_cast<std::uint16_t>(32 * warp + lane);
    });
    warps_[warp].present = lanes == 32 ? ~0U : (1U << lanes) - 1;
    warps_[warp].open = 0;
  });

  active_runner = this;
  watched_.begin_block();
  current_block = &view_;
  // Tells ThreadSanitizer that the block's threads run after this OS thread has initialised its
  // thread_local variables.
  declare_before(&shared_order_[blocks_run_ % 2]);
  Fiber* first = idle_fiber();
  running_ = first;
  switch_fiber(fibers_.host(), *first);
  ++blocks_run_;
  watched_.end_block();
  active_runner = nullptr;
  current_block = nullptr;
  current_thread = nullptr;
  idle_.insert(idle_.end(), used_.begin(), used_.end());
  used_.clear();
}

void BlockRunner::live(Fiber* self) {
  BlockRunner& runner = *active_runner;
  for (;;) {
    runner.run_one(self);
    Fiber* to = runner.choose(kTsan ? nullptr : self);
    if (to == self) continue;
    if (!FiberPool::intact(*self)) runner.stuck("a thread has used more than its 64 KiB of stack");
    (kTsan ? runner.used_ : runner.idle_).push_back(self);
    runner.running_ = to;
    const Loud parked;  // a fiber that is destroyed while parked must not be Quiet
    switch_fiber(*self, *to);
  }
}

Fiber* BlockRunner::idle_fiber() {
  if (idle_.empty()) return fibers_.make();
  // For ThreadSanitizer a fiber is a thread. A random fiber is used, so that equally numbered CUDA
  // threads of two blocks do not look like one thread.
  if (kTsan) std::swap(idle_[random_.below(idle_.size())], idle_.back());
  Fiber* fiber = idle_.back();
  idle_.pop_back();
  return fiber;
}

void BlockRunner::run_one(Fiber* self) {
  Thread& t = threads_[order_[begun_]];
  t.number = order_[begun_++];
  const dim3& d = view_.block_dim;
  if (d.y == 1 && d.z == 1)
    t.index = {t.number, 0, 0};  // most kernels; needs no divisions
  else
    t.index = {t.number % d.x, t.number / d.x % d.y, t.number / (d.x * d.y)};
  t.state = Thread::State::running;
  t.fiber = self;
  t.reads = {};
  t.copies.clear();
  t.groups = 0;
  t.multiplies_fenced = false;
  current_thread = &t;
  watched_.turn();
#ifdef VGPU_TSAN
  char name[96];
  std::snprintf(name, sizeof name, "block (%u,%u,%u) thread (%u,%u,%u)", view_.index.x,
                view_.index.y, view_.index.z, t.index.x, t.index.y, t.index.z);
  FiberPool::name(*self, name);
#endif
  {
    const auto run = grid_->call.run;
    const void* arguments = grid_->call.arguments.get();
    char *begin = &grid_->begin, *end = &grid_->end, *before = &shared_order_[blocks_run_ % 2],
         *after = &shared_order_[(blocks_run_ + 1) % 2];
    const Loud loud;
    happens_after(begin);
    happens_after(before);  // after the previous block used the __shared__ variables
    run(arguments);
    happens_before(after);
    happens_before(end);
  }
  finish(t);
}

void BlockRunner::finish(Thread& t) {
  t.state = Thread::State::finished;
#ifdef VGPU_TSAN
  if (t.released != nullptr) __tsan_destroy_fiber(std::exchange(t.released, nullptr));
#endif
  ++finished_;
  progress_ = true;
  if (!FiberPool::intact(*t.fiber)) stuck("a thread has used more than its 64 KiB of stack");
  Warp& warp = warps_[t.number / 32];
  warp.present &= ~(1U << t.number % 32);
  close_meetings(t.number / 32);  // meetings that waited only for this lane
}

Fiber* BlockRunner::choose(Fiber* free) {
  for (;;) {
    if (next_ready_ < ready_.size()) return threads_[ready_[next_ready_++]].fiber;
    ready_.clear();
    next_ready_ = 0;
    if (begun_ < count_) return free != nullptr ? free : idle_fiber();
    if (finished_ == count_) {
      async_.end_block();
      return &fibers_.host();
    }
    if (async_.deliver()) continue;
    if (spinning_.empty())
      stuck("barrier divergence: threads wait for others that will never arrive");
    pause();
    Permutation(spinning_.size(), random_.next()).each([&](std::uint64_t i) {
      ready_.push_back(spinning_[i]);
    });
    spinning_.clear();
  }
}

// ---- descriptions of a block for reports ----

std::string BlockRunner::describe() const {
  std::map<std::string, std::vector<unsigned>> groups;
  for (unsigned i = 0; i < begun_; ++i) {
    const Thread& t = threads_[order_[i]];
    const std::string place =
        std::string(t.where.file_name()) + ":" + std::to_string(t.where.line());
    std::string what;
    switch (t.state) {
      case Thread::State::finished:
        what = "left the kernel";
        break;
      case Thread::State::barrier:
        what = "wait in __syncthreads() at " + place;
        break;
      case Thread::State::mbarrier:
        what = "wait for an mbarrier at " + place + async_.describe(t.mbarrier);
        break;
      case Thread::State::warp:
        what = "wait for their warp at " + place;
        break;
      case Thread::State::running:
        what = "running, at " + place;
        break;
      case Thread::State::spinning: {
        what = "spin at " + place;
        for (const Thread::Read& r : t.reads)
          if (r.address != nullptr)
            what += ", read " + std::to_string(r.value) + " from " + describe_address(r.address);
        break;
      }
      case Thread::State::not_begun:
        break;
    }
    groups[what].push_back(t.number);
  }
  std::string out;
  for (auto& [what, threads] : groups) {
    std::sort(threads.begin(), threads.end());
    out += "\n  " + std::to_string(threads.size()) +
           (threads.size() == 1 ? " thread (" : " threads (") + describe_numbers(threads) + ") " +
           what;
  }
  return out;
}

std::string BlockRunner::describe_self() const {
  const uint3 b = view_.index;
  std::string out = grid_->describe() + ", block (" + std::to_string(b.x) + "," +
                    std::to_string(b.y) + "," + std::to_string(b.z) + ")";
  if (current_thread == nullptr) return out;
  const uint3 t = current_thread->index;
  return out + ", thread (" + std::to_string(t.x) + "," + std::to_string(t.y) + "," +
         std::to_string(t.z) + ")";
}

int BlockRunner::device() const { return grid_->queue.device().index(); }

bool BlockRunner::beyond_dynamic_shared(const void* address) const {
  const auto distance = static_cast<const std::byte*>(address) - (dynamic_ + kMostShared);
  return distance >= 0 && distance < static_cast<std::ptrdiff_t>(guard_page());
}

std::uint32_t BlockRunner::shared_address(const void* p) const {
  constexpr std::uint32_t kWindow = 1 << 18;  // shared addresses have 18 bits
  const auto before_end = dynamic_ + kMostShared - static_cast<const std::byte*>(p);
  if (before_end < 0 || before_end > static_cast<std::ptrdiff_t>(kWindow)) return 0;
  return kWindow - static_cast<std::uint32_t>(before_end);
}

void BlockRunner::stuck(const char* what) {
  const uint3 b = view_.index;
  fatal(std::string(what) + "\n  in " + grid_->describe() + ", block (" + std::to_string(b.x) +
        "," + std::to_string(b.y) + "," + std::to_string(b.z) + "):" + describe());
}

}  // namespace vgpu
