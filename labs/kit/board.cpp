#include "labs/kit/board.hpp"

#include <cstring>
#include <sched.h>
#include <time.h>

#include "labs/kit/processes.hpp"

namespace kit {
namespace {

std::uint64_t drawn(std::uint64_t& state) {  // xorshift64*
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 0x2545F4914F6CDD1DULL;
}

void sleep_microseconds(long us) {
  const timespec time{0, us * 1000};
  nanosleep(&time, nullptr);
}

void copy_name(char (&to)[24], const char* name) {
  std::strncpy(to, name, sizeof to - 1);
  to[sizeof to - 1] = '\0';
}

}  // namespace

Self& self() {
  static Self one;
  return one;
}

void begin_operation(const char* name) {
  if (Board* board = self().board) {
    copy_name(board->operation, name);
    ++board->sequence;
  }
}

std::uint64_t Counter::read() const { return value_.load(std::memory_order_acquire); }

void Counter::publish(std::uint64_t value) {
  value_.store(value, std::memory_order_release);
  Self& own = self();
  if (own.board) ++own.board->moves;
  if (own.pauses && drawn(own.state) % 4 == 0) sleep_microseconds(long(drawn(own.state) % 300));
}

void Counter::wait_at_least(std::uint64_t value, const char* what, int peer) const {
  Board* board = self().board;
  if (board) {
    copy_name(board->what, what);
    board->peer = peer;
    board->wanted = value;
    ++board->waits;
    board->counter = this;
  }
  // There may be more processes than cores, so after a short spin the wait yields to other
  // processes.
  for (int turn = 0; read() < value; ++turn)
    if (turn > 2000)
      sleep_microseconds(50);
    else if (turn > 50)
      sched_yield();
  if (board) {
    board->counter = nullptr;
    ++board->moves;
  }
}

std::vector<Wait> waits_of(const Board* boards, int world) {
  std::vector<Wait> all;
  for (int r = 0; r < world; ++r) {
    const Board& board = boards[r];
    Wait wait{r, {}, {}, board.done};
    const std::string place = std::string(board.operation) + " #" +
                              std::to_string(board.sequence.load()) + ", step " +
                              std::to_string(board.moves.load()) + ": ";
    if (const Counter* counter = board.counter) {
      wait.what = place + board.what + ", rank " + std::to_string(board.peer) + ": waits for " +
                  std::to_string(board.wanted) + ", sees " + std::to_string(counter->read());
      wait.peers.push_back(board.peer);
    } else if (!wait.done) {
      wait.what = place + "running, not waiting in the kit";
    }
    all.push_back(wait);
  }
  return all;
}

// Checks every rank twice, because the ranks are not read at the same instant: after its first
// check, the count of rank 0 may arrive, and the ranks that raised it may be seen waiting before
// rank 0 runs again. A rank that neither moved nor began a wait between its two checks was in the
// same wait when the second pass began. Counts only grow, so a count that is too low in the second
// pass was also too low when that pass began.
bool all_stuck(const Board* boards, int world) {
  const auto in_vain = [&](int r) {
    const Counter* counter = boards[r].counter;
    return counter && counter->read() < boards[r].wanted;
  };
  std::vector<std::uint64_t> moves, waits;
  bool any = false;
  for (int r = 0; r < world; ++r) {
    moves.push_back(boards[r].moves);
    waits.push_back(boards[r].waits);
    if (boards[r].done) continue;
    if (!in_vain(r)) return false;
    any = true;
  }
  for (int r = 0; r < world; ++r)  // reads counts before moves: the counts belong to that wait
    if ((!boards[r].done && !in_vain(r)) || boards[r].moves != moves[std::size_t(r)] ||
        boards[r].waits != waits[std::size_t(r)])
      return false;
  return any;
}

}  // namespace kit
