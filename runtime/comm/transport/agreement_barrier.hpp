// The agreement barrier: every rank says which call it is in, and goes on when all others are in
// the same.
//
// It is a barrier that carries the fingerprint, so that a mismatch is found before any data moves,
// by every rank, with both calls. Rounds are numbered from 1 and never reset. A rank that
// has completed round g knows that all have entered g, hence left g - 1: staging memory that
// alternates between two halves by the round's parity needs no other protection.
#pragma once

#include "runtime/comm/transport/peers.hpp"

namespace ringsmith::comm {

class AgreementBarrier {
 public:
  explicit AgreementBarrier(Peers& peers) : peers_(peers) {}

  // The round that answer() will open. Data for it may be staged now.
  [[nodiscard]] std::uint64_t next() const { return round_ + 1; }

  [[nodiscard]] std::uint64_t round() const { return round_; }  // the last one opened

  // "Here": publishes the call, and with it everything this rank has staged. Offsets of the call's
  // buffers in the segment, or kNotShared.
  void answer(const Call& call, std::uint64_t sequence, std::uint64_t input = kNotShared,
              std::uint64_t output = kNotShared);
  // Waits for all others. MismatchError if one of them is in another call.
  void await_all();

  // What rank r said in the current round.
  [[nodiscard]] const Answer& answer_of(int r) const {
    return peers_.control(r).answers[round_ % 2];
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
