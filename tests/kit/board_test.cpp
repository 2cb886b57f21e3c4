// The labs' judge must report a hang only if there is one. The test polls it while processes pass a
// token around, so the judge may look between any two of their instructions.
#include "labs/kit/board.hpp"

#include <array>
#include <new>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "labs/kit/processes.hpp"
#include "tests/support/catch.hpp"

namespace {

constexpr int kWorld = 3;

struct Shared {
  std::array<kit::Board, kWorld> boards;
  std::array<kit::Counter, kWorld> sent;  // by rank: number of tokens passed on
};

// Each rank is a process. The token goes around `rounds` times. If `lost`, the ranks wait for the
// token once more, but rank 0 does not pass it on.
class TokenRing {
 public:
  TokenRing(std::uint64_t rounds, bool lost) {
    void* at =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    shared_ = new (at) Shared{};
    for (int rank = 0; rank < kWorld; ++rank) {
      pids_[std::size_t(rank)] = fork();
      if (pids_[std::size_t(rank)] == 0) pass_on(rank, rounds, lost);
    }
  }
  ~TokenRing() {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
    munmap(shared_, sizeof(Shared));
  }
  TokenRing(const TokenRing&) = delete;
  TokenRing& operator=(const TokenRing&) = delete;

  [[nodiscard]] bool done() const {
    for (const kit::Board& board : shared_->boards)
      if (!board.done) return false;
    return true;
  }
  [[nodiscard]] bool stuck() const { return kit::all_stuck(shared_->boards.data(), kWorld); }

 private:
  [[noreturn]] void pass_on(int rank, std::uint64_t rounds, bool lost) {
    kit::Board& board = shared_->boards[std::size_t(rank)];
    kit::self() = {&board, false, 1};
    const int before = (rank + kWorld - 1) % kWorld;
    for (std::uint64_t round = 1; round <= rounds + (lost ? 1 : 0); ++round) {
      if (rank == 0 && round <= rounds) shared_->sent[0].publish(round);
      shared_->sent[std::size_t(before)].wait_at_least(round, "token", before);
      if (rank != 0) shared_->sent[std::size_t(rank)].publish(round);
    }
    board.done = true;
    _exit(0);
  }

  Shared* shared_ = nullptr;
  std::array<pid_t, kWorld> pids_{};
};

}  // namespace

TEST_CASE("ranks that go on are never taken for stuck, whenever they are looked at", "[kit]") {
  const TokenRing ring(1'000, false);
  std::uint64_t wrong = 0;
  while (!ring.done()) wrong += ring.stuck() ? 1 : 0;
  CHECK(wrong == 0);
}

TEST_CASE("ranks that wait for a lost token are found to be stuck", "[kit]") {
  const TokenRing ring(3, true);
  while (!ring.stuck() && !ring.done()) {
  }
  CHECK(ring.stuck());
}
