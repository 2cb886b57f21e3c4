#include "labs/kit/fabric/fabric_state.hpp"

#include <algorithm>
#include <sstream>
#include <tuple>

#include "labs/kit/driver.hpp"

namespace kit {

void Fabric::State::finish(int rank, Half& half, double time) {
  half.done = true;
  half.finished = time;
  Rank& owner = at(rank);
  if (!owner.sending.done || !owner.receiving.done) return;
  owner.clock = std::max({owner.clock, owner.sending.finished, owner.receiving.finished});
  if (owner.state == Rank::blocked) owner.state = Rank::ready;
}

bool Fabric::State::mismatch(int from, int to, std::size_t sent, std::size_t expected) {
  if (sent == expected) return false;
  std::ostringstream text;
  text << "rank " << from << " sends " << sent << " elements to rank " << to << ", which expects "
       << expected << " (message " << pair(from, to).messages << " between them, "
       << at(to).operation << ", step " << at(to).step << " of rank " << to << ")";
  if (misuse.empty()) misuse = text.str();
  return true;
}

// Moves messages from one rank to another: into the buffer, out of it, or directly.
void Fabric::State::advance(int from, int to) {
  Pair& wire = pair(from, to);
  const auto taken = [&](Half& recv, std::size_t bytes, double time) {
    ++wire.messages;
    at(to).received_bytes += std::int64_t(bytes);
    ++at(to).from[std::size_t(from)];
    wire.recv = nullptr;
    finish(to, recv, time);
  };
  const auto left = [&](Half& send, double time) {
    at(from).sent_bytes += std::int64_t(send.count * send.element);
    ++at(from).messages;
    wire.send = nullptr;
    finish(from, send, time);
  };
  for (bool moved = true; moved && misuse.empty();) {
    moved = false;
    if (wire.recv && !wire.buffer.empty()) {
      Buffered& first = wire.buffer.front();
      Half& recv = *wire.recv;
      if (mismatch(from, to, first.count, recv.count)) return;
      std::copy(first.bytes.begin(), first.bytes.end(), recv.in);
      const std::size_t bytes = first.bytes.size();
      const double time = std::max(first.arrives, recv.posted);
      wire.buffer.pop_front();
      taken(recv, bytes, time);
      moved = true;
    } else if (wire.send && wire.recv && wire.buffer.empty()) {
      Half &send = *wire.send, &recv = *wire.recv;
      if (mismatch(from, to, send.count, recv.count)) return;
      const std::size_t bytes = send.count * send.element;
      std::copy(send.out, send.out + bytes, recv.in);
      const double start = std::max({send.posted, recv.posted, at(from).out_free, at(to).in_free});
      const double end = start + delay(bytes);
      at(from).out_free = at(to).in_free = end;
      left(send, end);
      taken(recv, bytes, end);
      moved = true;
    } else if (wire.send && wire.buffer.size() < std::size_t(options.capacity)) {
      Half& send = *wire.send;
      const std::size_t bytes = send.count * send.element;
      const double start = std::max({send.posted, at(from).out_free, at(to).in_free});
      const double end = start + delay(bytes);
      at(from).out_free = at(to).in_free = end;
      wire.buffer.push_back({{send.out, send.out + bytes}, send.count, end});
      left(send, send.posted);
      moved = true;
    }
  }
}

std::vector<Wait> Fabric::State::waits() {
  std::vector<Wait> all;
  for (int r = 0; r < options.world; ++r) {
    Rank& rank = at(r);
    Wait wait{r, {}, {}, rank.state == Rank::done};
    if (rank.state == Rank::blocked) {
      std::ostringstream text;
      text << rank.operation << " #" << rank.sequence << ", step " << rank.step << ":";
      for (const auto& [half, verb, word] :
           {std::tuple{&rank.sending, "send", "to"}, std::tuple{&rank.receiving, "recv", "from"}})
        if (!half->done) {
          text << (wait.peers.empty() ? " " : " and ") << verb << " of " << half->count
               << " elements " << word << " rank " << half->peer;
          wait.peers.push_back(half->peer);
        }
      wait.what = text.str();
    }
    all.push_back(wait);
  }
  return all;
}

void Fabric::State::resume(Rank& rank) {
  rank.wake.release();
  conductor.acquire();
}

// Does nothing if any_ready is true and no call was wrong. Otherwise stops all running ranks, and
// throws the exception of the lowest rank that threw one, or Misuse, or Hang.
void Fabric::State::fail_if_stuck(bool any_ready) {
  if (any_ready && misuse.empty()) return;
  const std::string report = misuse.empty() ? "no rank can continue\n" + describe(waits()) : "";
  unwinding = true;
  for (Rank& rank : ranks)
    while (rank.state != Rank::done) resume(rank);
  for (Rank& rank : ranks) rank.thread.join();
  for (std::size_t r = 0; r < ranks.size(); ++r)  // the other ranks wait because a rank threw
    if (ranks[r].failure) std::rethrow_exception(ranks[r].failure);
  if (!misuse.empty()) throw Misuse{misuse};
  throw Hang{report};
}

}  // namespace kit
