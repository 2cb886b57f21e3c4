#include "runtime/comm/transport/agreement_barrier.hpp"

#include <algorithm>
#include <thread>

namespace ringsmith::comm {

void AgreementBarrier::answer(std::uint64_t input, std::uint64_t output, bool several) {
  ++round_;
  Answer& mine = peers_.segments().mine().answers[round_ % 2];
  mine.record.copy(peers_.segments().mine().board.record, std::memory_order_relaxed);
  mine.input.store(input, std::memory_order_relaxed);
  mine.output.store(output, std::memory_order_relaxed);
  mine.several.store(several ? 1 : 0, std::memory_order_relaxed);
  peers_.segments().expose_to_all(&mine, sizeof mine);
  peers_.segments().publish(mine.round, round_);
}

bool AgreementBarrier::same_call(int a, int b) const {
  const CallRecord &one = answer_of(a).record, &other = answer_of(b).record;
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
    // A higher rank may disagree while a lower one has not arrived yet.
    for (int r = missing + 1; r < world && !mismatch; ++r)
      mismatch = answer_of(r).round.load() == round_ && !same_call(rank, r);
    return missing == world || mismatch;
  });
  if (mismatch) report_mismatch();
}

// All ranks should name the same two ranks: the lowest ranks of the two largest parties. So late
// ranks get a moment to arrive, unless a rank reports a failure.
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
    peers_.health().fail(FailureKind::other, -1, "ranks disagree, but no two calls differ");
  std::ranges::stable_sort(parties, std::greater(), [](const auto& party) { return party.size(); });
  const int first = parties[0].front(), odd = parties[1].front();
  const bool clear = parties[0].size() > 1;  // otherwise no two of the ranks agree
  std::string text = describe(first) + " but " + describe(odd) +
                     ": all ranks must make the same calls in the same order";
  if (clear)
    text += "; " + std::to_string(parties[0].size()) + " ranks agree with rank " +
            std::to_string(first) + ", " + std::to_string(parties[1].size()) + " with rank " +
            std::to_string(odd);
  peers_.health().fail(FailureKind::mismatch, clear || first == peers_.rank() ? odd : first, text);
}

// Throws the error that a peer has reported, if there is one, because it caused the mismatch. An
// abort of the group counts as such an error.
void AgreementBarrier::adopt_report() {
  peers_.segments().look();
  if (const auto report = peers_.health().look_for_report(); report.kind != FailureKind::none)
    peers_.health().fail(report.kind, report.culprit, report.text);
}

std::string AgreementBarrier::describe(int r) const {
  const CallRecord& record = answer_of(r).record;
  return "rank " + std::to_string(r) + " called " + record.unpacked().describe() + " #" +
         std::to_string(record.sequence.load()) + peers_.health().at_site(r, record.site.load());
}

}  // namespace ringsmith::comm
