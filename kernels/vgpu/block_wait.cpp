// The functions in which CUDA threads wait: barriers, meetings of a warp, spinning.
#include <atomic>
#include <bit>
#include <cstring>
#include <sched.h>
#include <time.h>

#include "kernels/vgpu/api/foreign_launch.hpp"
#include "kernels/vgpu/block.hpp"
#include "kernels/vgpu/order.hpp"

namespace vgpu {

[[gnu::always_inline]] inline void BlockRunner::suspend() {
  Thread& t = self();
  Fiber* to = next_ready_ < ready_.size() ? threads_[ready_[next_ready_++]].fiber : choose(nullptr);
  if (to != t.fiber) {
    running_ = to;
    switch_fiber(*t.fiber, *to);
  }
  t.state = Thread::State::running;
  current_thread = &t;
  watched_.turn();
}

[[gnu::always_inline]] inline int BlockRunner::barrier(Combine combine, bool predicate,
                                                       const Source& where) {
  Thread& t = self();
  char* order =
      &barrier_order_[generation_ % 2];  // two, to keep the arrivals at successive barriers apart
  happens_before(order);
  {
    const Quiet quiet;
    if (arrived_ == 0) {
      counted_ = 0;
    } else {
      const Source& first = threads_[first_arrived_].where;
      if (first.line() != where.line() || std::strcmp(first.file_name(), where.file_name()) != 0) {
        t.where = where;
        t.state = Thread::State::barrier;
        stuck("barrier divergence: threads of one block are at different __syncthreads()");
      }
    }
    if (arrived_ == 0) first_arrived_ = t.number;
    ++arrived_;
    counted_ += predicate ? 1 : 0;
    t.where = where;
    t.state = Thread::State::barrier;
    if (arrived_ == count_) {
      combined_ = combine == Combine::count ? static_cast<int>(counted_)
                  : combine == Combine::all ? static_cast<int>(counted_ == count_)
                                            : static_cast<int>(counted_ != 0);
      arrived_ = 0;
      ++generation_;
      progress_ = true;
      Permutation(count_, random_.next()).each([&](std::uint64_t i) {
        ready_.push_back(static_cast<std::uint16_t>(i));
      });
    }
    suspend();
  }
  happens_after(order);
  return combined_;  // the next barrier cannot complete before this thread arrives
}

[[gnu::always_inline]] inline void BlockRunner::meet(WarpOp op, unsigned mask, const Source& where,
                                                     Together together) {
  Thread& t = self();
  const unsigned number = t.number / 32, lane = t.number % 32;
  char* order = nullptr;
  {
    const Quiet quiet;
    t.where = where;
    if ((mask >> lane & 1U) == 0)
      stuck("a lane calls a warp function whose mask does not include it");
    Warp& warp = warps_[number];
    Meeting* meeting = nullptr;
    for (unsigned m = 0; m < warp.open; ++m) {
      Meeting& candidate = warp.meetings[m];
      if (candidate.arrived != 0 ? candidate.mask == mask : meeting == nullptr)
        meeting = &candidate;
      if (candidate.arrived != 0 && candidate.mask == mask) break;
    }
    if (meeting == nullptr) meeting = &warp.meetings[warp.open++];
    if (meeting->arrived != 0 && (meeting->op != op || meeting->together != together))
      stuck("lanes of one warp call different warp functions with the same mask");
    meeting->mask = mask;
    meeting->op = op;
    meeting->together = together;
    meeting->arrived |= 1U << lane;
    t.state = Thread::State::warp;
    if (op == WarpOp::sync) order = &meeting->order[meeting->generation % 2];
  }
  if (order != nullptr) happens_before(order);
  {
    const Quiet quiet;
    close_meetings(number);
    suspend();
  }
  if (order != nullptr) happens_after(order);
}

void BlockRunner::close_meetings(unsigned number) {
  Warp& warp = warps_[number];
  for (unsigned m = 0; m < warp.open; ++m) {
    Meeting& meeting = warp.meetings[m];
    if (meeting.arrived == 0 || (meeting.mask & warp.present & ~meeting.arrived) != 0) continue;
    const auto lane = [&](unsigned l) -> LaneRequest& { return threads_[32 * number + l].lane; };
    answer(meeting, lane);
    if (meeting.op == WarpOp::together) {
      if (meeting.arrived != ~0U) stuck("a tensor core instruction is missing lanes of its warp");
      void* brought[32];
      for (unsigned l = 0; l < 32; ++l) brought[l] = lane(l).brought;
      meeting.together(brought);
    }
    const unsigned turn = static_cast<unsigned>(random_.below(32));
    for (unsigned lanes = std::rotr(meeting.arrived, static_cast<int>(turn)); lanes != 0;
         lanes &= lanes - 1)
      ready_.push_back(static_cast<std::uint16_t>(
          32 * number + (static_cast<unsigned>(std::countr_zero(lanes)) + turn) % 32));
    meeting.arrived = 0;
    ++meeting.generation;
    progress_ = true;
  }
}

[[gnu::always_inline]] inline void BlockRunner::spin(const Source& where) {
  Thread& t = self();
  t.where = where;
  t.state = Thread::State::spinning;
  spinning_.push_back(t.number);
  suspend();
}

void BlockRunner::sleep(const void* mbarrier, const Source& where) {
  Thread& t = self();
  t.where = where;
  t.mbarrier = mbarrier;
  t.state = Thread::State::mbarrier;
  suspend();
}
void BlockRunner::wake(std::uint16_t thread) {
  make_ready(thread);
  progress_ = true;
}

// Called when no thread can run except spinning ones, which wait for another block, kernel, device
// or process. The first calls without progress return immediately, because the other side may run
// on another core. The next calls yield this core, and all later calls sleep briefly.
void BlockRunner::pause() {
  constexpr unsigned kHot = 16, kYields = 64;
  constexpr long kShortSleep_ns = 20'000, kLongSleep_ns = 200'000;
  const auto now = [] { return std::chrono::steady_clock::now(); };
  if (progress_) {
    progress_ = false;
    rounds_ = 0;
    return;
  }
  ++rounds_;
  if (rounds_ == kHot) since_ = now();
  if (rounds_ < kHot) return;
  if (rounds_ == kHot) grid_->relieve(share_);
  if (rounds_ < kYields) {
    ::sched_yield();
    return;
  }
  const timespec time{0, rounds_ < 4 * kYields ? kShortSleep_ns : kLongSleep_ns};
  ::nanosleep(&time, nullptr);
  if (rounds_ % 64 == 0 && now() - since_ > std::chrono::milliseconds(Settings::get().deadline_ms))
    stuck("a kernel spins forever (VGPU_DEADLINE_MS has passed)");
}

// Called by kernels.

int barrier(Combine combine, bool predicate, const Source& where) {
  return active_runner->barrier(combine, predicate, where);
}

bool grid_is_cooperative() { return active_runner->grid().cooperative; }
void meet_grid(const Source& where) { active_runner->grid().meet(where); }

// The last block to arrive begins the next turn. The others spin, so that blocks that have not
// begun get a thread.
void Grid::meet(const Source& where) {
  BlockRunner& runner = *active_runner;
  if (!cooperative) {
    const Quiet quiet;
    runner.stuck("grid_group::sync() in a kernel that cudaLaunchCooperativeKernel did not launch");
  }
  const std::uint32_t turn = turn_.load(std::memory_order_acquire);
  if (met_.fetch_add(1, std::memory_order_acq_rel) + 1 == blocks_) {
    met_.store(0, std::memory_order_relaxed);
    turn_.store(turn + 1, std::memory_order_release);
    return;
  }
  while (turn_.load(std::memory_order_acquire) == turn) {
    const Quiet quiet;
    runner.spin(where);
  }
  const Quiet quiet;
  runner.progress();
}

void nanosleep(unsigned, const Source& where) {
  const Quiet quiet;
  active_runner->spin(where);
}

void loaded(const void* address, std::uint64_t value, const Source& where) {
  if (current_thread == nullptr) return;  // host code
  const Quiet quiet;
  BlockRunner& runner = *active_runner;
  Thread& t = runner.self();
  for (Thread::Read& r : t.reads) {
    if (r.address != address) continue;
    if (r.value == value) {
      runner.spin(where);
    } else {
      r.value = value;
      runner.progress();
    }
    return;
  }
  t.reads[t.next_read++ % t.reads.size()] = {address, value};
  runner.progress();
}

// ThreadSanitizer does not model fences. A release fence turns the thread's later atomic stores
// into release stores, but only for the accesses before the fence. A fiber that never runs keeps
// that order:
//
//     fence:    switch to the fiber, which is ordered after the thread's accesses so far, and back
//     publish:  switch to the fiber without any order, release, and back
//
// An acquire fence acquires all writes published through the last four words that the thread has
// read atomically.
void fence(bool acquire, [[maybe_unused]] bool release) {
  if (current_thread == nullptr || !kTsan) {
#ifndef VGPU_TSAN
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
    return;
  }
  [[maybe_unused]] Thread& t = active_runner->self();
  if (acquire)
    for (const Thread::Read& r : t.reads)
      if (r.address != nullptr) happens_after(const_cast<void*>(r.address));
#ifdef VGPU_TSAN
  if (!release) return;
  if (t.released == nullptr) t.released = __tsan_create_fiber(0);
  void* const self = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(t.released, kInOrder);
  __tsan_switch_to_fiber(self, kWithoutOrder);
#endif
}

void publish([[maybe_unused]] void* p) {
#ifdef VGPU_TSAN
  if (current_thread == nullptr) return;
  void* const released = active_runner->self().released;
  if (released == nullptr) return;
  void* const self = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(released, kWithoutOrder);
  happens_before(p);
  __tsan_switch_to_fiber(self, kWithoutOrder);
#endif
}

void trap(const Source& where) {
  BlockRunner& runner = *active_runner;
  runner.self().where = where;
  runner.stuck("__trap()");
}

unsigned lane() { return active_runner->self().number % 32; }

std::uint64_t shuffle(unsigned mask, std::uint64_t value, unsigned from, const Source& where) {
  BlockRunner& runner = *active_runner;
  LaneRequest& request = runner.self().lane;
  {
    const Quiet quiet;
    request.value = value;
    request.from = from % 32;
  }
  runner.meet(WarpOp::shuffle, mask, where);
  const Quiet quiet;
  return request.answer;
}

unsigned vote(Vote kind, unsigned mask, bool predicate, const Source& where) {
  BlockRunner& runner = *active_runner;
  LaneRequest& request = runner.self().lane;
  {
    const Quiet quiet;
    request.value = predicate ? 1 : 0;
  }
  runner.meet(WarpOp::vote, mask, where);
  const Quiet quiet;
  const auto ballot = static_cast<unsigned>(request.answer);
  if (kind == Vote::ballot) return ballot;
  if (kind == Vote::any) return static_cast<unsigned>(ballot != 0);
  return static_cast<unsigned>(ballot == request.from);
}

void meet_together(Together together, void* brought, const Source& where) {
  BlockRunner& runner = *active_runner;
  {
    const Quiet quiet;
    runner.self().lane.brought = brought;
  }
  runner.meet(WarpOp::together, ~0U, where, together);
}

void sync_warp(unsigned mask, const Source& where) {
  active_runner->meet(WarpOp::sync, mask, where);
}

}  // namespace vgpu
