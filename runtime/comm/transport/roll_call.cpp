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
    if (arrival(r).round.load() == round_)
      ++r;
    else
      std::this_thread::yield();
  }
  std::string first_text;
  int first = -1;
  for (int r = 0; r < host_.size(); ++r) {
    const Arrival& a = arrival(r);
    if (a.round.load() != round_) continue;
    const Call call = Call::unpack(a.call.load(), a.count.load());
    const std::string text = "rank " + std::to_string(r) + " called " + call.describe() + " #" +
                             std::to_string(a.sequence.load());
    if (first < 0) {
      first = r;
      first_text = text;
      continue;
    }
    const Arrival& f = arrival(first);
    if (f.call.load() == a.call.load() && f.count.load() == a.count.load()) continue;
    host_.fail(
        FailureKind::mismatch, first == host_.rank() ? r : first,
        first_text + " but " + text + ": all ranks must make the same calls in the same order");
  }
  host_.fail(FailureKind::other, -1, "a mismatch of calls disappeared");
}

}  // namespace ringsmith::comm
