#include "runtime/job/forked.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <span>
#include <sys/mman.h>
#include <thread>

#include "runtime/base/deadline.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/process.hpp"

namespace ringsmith::comm {

namespace {

constexpr std::chrono::microseconds kPipePoll{50};

}  // namespace

// The two records alternate, because a rank can be one exchange ahead of another, but never two.
struct ForkedMeeting::Seat {
  std::atomic<std::uint64_t> published{0};  // exchanges for which this rank has written a record
  std::array<std::uint32_t, 2> length{};
  std::array<std::array<char, kRecordRoom>, 2> record{};
};

namespace {

class ForkedBootstrap : public Bootstrap {
 public:
  ForkedBootstrap(std::span<ForkedMeeting::Seat> seats, int rank, std::chrono::milliseconds timeout)
      : seats_(seats), rank_(rank), timeout_(timeout) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(seats_.size()); }

  [[nodiscard]] std::vector<std::string> all_gather(const std::string& record) override {
    check_record(record);
    const std::uint64_t exchange = ++exchanges_;
    ForkedMeeting::Seat& mine = seats_[static_cast<std::size_t>(rank_)];
    mine.length[exchange % 2] = static_cast<std::uint32_t>(record.size());
    record.copy(mine.record[exchange % 2].data(), record.size());
    mine.published.store(exchange, std::memory_order_release);
    const Deadline deadline = Deadline::in(timeout_);
    std::vector<std::string> all;
    for (const ForkedMeeting::Seat& seat : seats_) {
      while (seat.published.load(std::memory_order_acquire) < exchange) {
        if (deadline.passed()) report_missing(exchange);
        std::this_thread::sleep_for(kPipePoll);
      }
      all.emplace_back(seat.record[exchange % 2].data(), seat.length[exchange % 2]);
    }
    return all;
  }

 private:
  [[noreturn]] void report_missing(std::uint64_t exchange) const {
    std::string missing;
    for (std::size_t r = 0; r < seats_.size(); ++r)
      if (seats_[r].published.load() < exchange)
        missing += (missing.empty() ? "rank " : ", rank ") + std::to_string(r);
    throw TimeoutError("rank " + std::to_string(rank_) + " (" + process_place() + ") has waited " +
                           std::to_string(timeout_.count()) + " ms for the others: " + missing +
                           " did not arrive",
                       {.rank = rank_, .op = {}});
  }

  std::span<ForkedMeeting::Seat> seats_;
  int rank_;
  std::chrono::milliseconds timeout_;
  std::uint64_t exchanges_ = 0;
};

}  // namespace

ForkedMeeting::ForkedMeeting(int ranks) : ranks_(ranks) {
  // New pages are zero, which is the initial state of a seat.
  void* const memory = mmap(nullptr, static_cast<std::size_t>(ranks) * sizeof(Seat),
                            PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw_errno("cannot map memory for " + std::to_string(ranks) + " ranks to meet in", errno);
  seats_ = static_cast<Seat*>(memory);
}

ForkedMeeting::~ForkedMeeting() { munmap(seats_, static_cast<std::size_t>(ranks_) * sizeof(Seat)); }

std::shared_ptr<Bootstrap> ForkedMeeting::join(int rank, std::chrono::milliseconds timeout) const {
  return std::make_shared<ForkedBootstrap>(std::span(seats_, static_cast<std::size_t>(ranks_)),
                                           rank, timeout);
}

}  // namespace ringsmith::comm
