#include "runtime/analysis/credits.hpp"

#include <algorithm>
#include <map>

#include "runtime/analysis/interpreter.hpp"

namespace ringsmith::comm {

namespace {

using Clock = std::vector<int>;  // [rank]: number of its steps known to be finished

class CreditClocks : public Observer {
 public:
  explicit CreditClocks(const Schedule& schedule)
      : schedule_(schedule),
        now_(schedule.steps.size(), Clock(schedule.steps.size(), 0)),
        reads_(schedule.steps.size()) {}

  // A post at step s lets its receiver know that the sender's steps before s are finished.
  void posted(int rank, int step) override {
    Clock& clock = now_[at(rank)];
    clock[at(rank)] = step;
    messages_[{rank, step}] = clock;
  }

  void received(int rank, int step, int sender, int sender_step) override {
    const Step& taken = schedule_.steps[at(rank)][at(step)];
    const bool empty = schedule_.chunks[at(taken.recv_chunk)].count == 0;
    Clock& clock = now_[at(rank)];
    clock[at(rank)] = step;
    if (sender != rank && !empty) {
      const Clock& theirs = messages_.at({sender, sender_step});
      for (std::size_t r = 0; r < clock.size(); ++r) clock[r] = std::max(clock[r], theirs[r]);
    }
    if (!empty) {
      writes_.push_back({rank, step, taken.recv_chunk, clock});
      if (sender != rank) {
        const int chunk = schedule_.steps[at(sender)][at(sender_step)].send_chunk;
        reads_[at(sender)].push_back({sender_step, chunk, rank, step});
      }
    }
    clock[at(rank)] = step + 1;
  }

  CreditReport report() const {
    CreditReport report;
    if (!schedule_.separate_input)
      for (const Write& write : writes_)
        for (const Read& read : reads_[at(write.rank)])
          if (read.chunk == write.chunk && read.posted_at <= write.step &&
              write.known[at(read.reader)] <= read.reader_step)
            report.waits.push_back(
                {write.rank, write.step, write.chunk, read.reader, read.reader_step});
    for (std::size_t rank = 0; rank < reads_.size(); ++rank)
      if (std::any_of(reads_[rank].begin(), reads_[rank].end(), [&](const Read& read) {
            return now_[rank][at(read.reader)] <= read.reader_step;
          }))
        report.read_after_end.push_back(static_cast<int>(rank));
    return report;
  }

 private:
  struct Read {  // of one rank's buffer
    int posted_at, chunk, reader, reader_step;
  };
  struct Write {
    int rank, step, chunk;
    Clock known;  // just before the write
  };

  const Schedule& schedule_;
  std::vector<Clock> now_;
  std::map<std::pair<int, int>, Clock> messages_;
  std::vector<std::vector<Read>> reads_;  // [rank whose buffer is read]
  std::vector<Write> writes_;
};

}  // namespace

CreditReport check_credits(const Schedule& whole) {
  const Schedule schedule = one_chunk_steps(whole);
  CreditClocks clocks(schedule);
  (void)interpret(schedule, {}, clocks);
  return clocks.report();
}

}  // namespace ringsmith::comm
