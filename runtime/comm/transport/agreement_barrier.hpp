// The agreement barrier: every rank announces its call and continues once all ranks have done so.
//
// The announcement includes the call's fingerprint, so every rank detects a mismatch before any
// data moves. Rounds are numbered from 1 and never reset. A rank that has completed round g knows
// that all ranks have entered g and hence left g - 1. So the two staging areas, used alternately,
// need no other protection.
#pragma once

#include "runtime/comm/transport/peers.hpp"

namespace ringsmith::comm {

class AgreementBarrier {
 public:
  explicit AgreementBarrier(Peers& peers) : peers_(peers) {}

  // Returns the round that the next answer() opens. Data for it may be staged now.
  [[nodiscard]] std::uint64_t next() const { return round_ + 1; }

  [[nodiscard]] std::uint64_t round() const { return round_; }  // the last round opened

  // Announces the call that is on this rank's board, and publishes everything that this rank has
  // staged. input, output: the places of the call's buffers, as in Answer, or kNotShared. several:
  // as in Answer.
  void answer(std::uint64_t input = kNotShared, std::uint64_t output = kNotShared,
              bool several = false);
  // Waits for all other ranks. Throws MismatchError if one of them is in another call, and whatever
  // Peers::wait() throws.
  void await_all();

  [[nodiscard]] const Answer& answer_of(int r) const {
    return peers_.segments().control(r).answers[round_ % 2];
  }

 private:
  [[nodiscard]] bool answered(int r) const { return answer_of(r).round.load() == round_; }
  void adopt_report();
  [[nodiscard]] bool same_call(int a, int b) const;
  [[nodiscard]] std::string describe(int r) const;
  [[noreturn]] void report_mismatch();

  Peers& peers_;
  std::uint64_t round_ = 0;
};

}  // namespace ringsmith::comm
