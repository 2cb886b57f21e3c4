#include "runtime/comm/transport/agreement_barrier.hpp"

#include <algorithm>
#include <thread>

namespace ringsmith::comm {

void AgreementBarrier::answer(const Call& call, std::uint64_t sequence, std::uint64_t input,
                              std::uint64_t output) {
  ++round_;
  Answer& mine = peers_.mine().answers[round_ % 2];
  mine.call.store(call.pack(), std::memory_order_relaxed);
  mine.count.store(call.count, std::memory_order_relaxed);
  mine.sequence.store(sequence, std::memory_order_relaxed);
  mine.site.store(peers_.mine().board.site.load(std::memory_order_relaxed),
                  std::memory_order_relaxed);
  mine.input.store(input, std::memory_order_relaxed);
  mine.output.store(output, std::memory_order_relaxed);
  peers_.expose_to_all(&mine, sizeof mine);
  peers_.publish(mine.round, round_);
}

bool AgreementBarrier::same_call(int a, int b) const {
  const Answer &one = answer_of(a), &other = answer_of(b);
  return one.call.load(std::memory_order_relaxed) == other.call.load(std::memory_order_relaxed) &&
         one.count.load(std::memory_order_relaxed) == other.count.load(std::memory_order_relaxed);
}

void AgreementBarrier::await_all() {
  const int rank = peers_.rank(), world = peers_.size();
  int missing = 0;  // all ranks below it have answered
  bool mismatch = false;
  peers_.wait(missing, [&] {
    while (missing < world && answer_of(missing).round.load() == round_) {
      mismatch = mismatch || !same_call(rank, missing);
      ++missing;
    }
    // Checks the higher ranks, too, because one may disagree while a lower rank has not arrived
    // yet.
    for (int r = missing + 1; r < world && !mismatch; ++r)
      mismatch = answer_of(r).round.load() == round_ && !same_call(rank, r);
    return missing == world || mismatch;
  });
  if (mismatch) report_mismatch();
}

// Throws the error for calls that differ. All ranks should name the same two ranks: the lowest
// ranks of the two largest parties. Therefore late ranks get a moment to arrive, unless a rank
// reports a failure.
void AgreementBarrier::report_mismatch() {
  constexpr std::chrono::milliseconds kMoment{500};
  adopt_report();
  const auto until = std::chrono::steady_clock::now() + kMoment;
  for (int r = 0; r < peers_.size() && std::chrono::steady_clock::now() < until;) {
    if (answered(r)) {
      ++r;
      continue;
    }
    adopt_report();
    std::this_thread::yield();
  }
  std::vector<std::vector<int>> parties;  // each: the ranks in the same call
  for (int r = 0; r < peers_.size(); ++r) {
    if (!answered(r)) continue;
    const auto party =
        std::ranges::find_if(parties, [&](const auto& p) { return same_call(p.front(), r); });
    if (party == parties.end())
      parties.push_back({r});
    else
      party->push_back(r);
  }
  if (parties.size() < 2)
    peers_.fail(FailureKind::other, -1, "ranks disagree, but no two calls differ");
  std::ranges::stable_sort(parties, std::greater(), [](const auto& party) { return party.size(); });
  const int first = parties[0].front(), odd = parties[1].front();
  const bool clear = parties[0].size() > 1;  // otherwise no two of the ranks agree
  std::string text = describe(first) + " but " + describe(odd) +
                     ": all ranks must make the same calls in the same order";
  if (clear)
    text += "; " + std::to_string(parties[0].size()) + " ranks agree with rank " +
            std::to_string(first) + ", " + std::to_string(parties[1].size()) + " with rank " +
            std::to_string(odd);
  peers_.fail(FailureKind::mismatch, clear || first == peers_.rank() ? odd : first, text);
}

// If another rank has already reported a failure, throws that instead, because it caused the
// mismatch.
void AgreementBarrier::adopt_report() {
  peers_.look();
  if (const auto report = peers_.look_for_report(); report.kind != FailureKind::none)
    peers_.fail(report.kind, report.culprit, report.text);
}

std::string AgreementBarrier::describe(int r) const {
  const Answer& a = answer_of(r);
  return "rank " + std::to_string(r) + " called " +
         Call::unpack(a.call.load(), a.count.load()).describe() + " #" +
         std::to_string(a.sequence.load()) + peers_.at_site(r, a.site.load());
}

}  // namespace ringsmith::comm
