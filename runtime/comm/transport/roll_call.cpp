#include "runtime/comm/transport/roll_call.hpp"

#include <thread>

namespace ringsmith::comm {

void RollCall::answer(const Call& call, std::uint64_t sequence, std::uint64_t input,
                      std::uint64_t output) {
  ++round_;
  Arrival& mine = host_.mine().arrivals[round_ % 2];
  mine.call.store(call.pack(), std::memory_order_relaxed);
  mine.count.store(call.count, std::memory_order_relaxed);
  mine.sequence.store(sequence, std::memory_order_relaxed);
  mine.input.store(input, std::memory_order_relaxed);
  mine.output.store(output, std::memory_order_relaxed);
  host_.expose_to_all(&mine, sizeof mine);
  host_.publish(mine.round, round_);
}

bool RollCall::differs(int r) const {
  const Arrival &mine = arrival(host_.rank()), &theirs = arrival(r);
  return theirs.call.load(std::memory_order_relaxed) != mine.call.load(std::memory_order_relaxed) ||
         theirs.count.load(std::memory_order_relaxed) != mine.count.load(std::memory_order_relaxed);
}

void RollCall::await_all() {
  const int world = host_.size();
  int missing = 0;  // everybody below has answered
  bool mismatch = false;
  host_.wait(missing, [&] {
    while (missing < world && arrival(missing).round.load() == round_) {
      mismatch = mismatch || differs(missing);
      ++missing;
    }
    // Somebody further up may disagree while a slower rank is still on its way.
    for (int r = missing + 1; r < world && !mismatch; ++r)
      mismatch = arrival(r).round.load() == round_ && differs(r);
    return missing == world || mismatch;
  });
  if (mismatch) report_mismatch();
}

// All ranks name the same two: the lowest rank, and the lowest that differs from it. For that,
// those that are still on their way get a moment to arrive.
void RollCall::report_mismatch() {
  constexpr std::chrono::milliseconds kMoment{100};
  const auto until = std::chrono::steady_clock::now() + kMoment;
  for (int r = 0; r < host_.size() && std::chrono::steady_clock::now() < until;) {
    if (arrival(r).round.load() == round_) {
      ++r;
      continue;
    }
    host_.look();
    std::this_thread::yield();
  }
  const auto answered = [&](int r) { return arrival(r).round.load() == round_; };
  const auto describe = [&](int r) {
    const Arrival& a = arrival(r);
    return "rank " + std::to_string(r) + " called " +
           Call::unpack(a.call.load(), a.count.load()).describe() + " #" +
           std::to_string(a.sequence.load());
  };
  int first = 0;
  while (!answered(first)) ++first;  // this rank has, at least
  const Arrival& f = arrival(first);
  int odd = first + 1;
  while (odd < host_.size() && (!answered(odd) || (arrival(odd).call.load() == f.call.load() &&
                                                   arrival(odd).count.load() == f.count.load())))
    ++odd;
  if (odd == host_.size())
    host_.fail(FailureKind::other, -1, "ranks disagree, but no two calls differ");
  host_.fail(FailureKind::mismatch, first == host_.rank() ? odd : first,
             describe(first) + " but " + describe(odd) +
                 ": all ranks must make the same calls in the same order");
}

}  // namespace ringsmith::comm
