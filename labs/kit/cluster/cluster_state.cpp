#include "labs/kit/cluster/cluster_state.hpp"

#include <algorithm>
#include <cstring>

#include "labs/kit/driver.hpp"

namespace kit {

void Cluster::State::yield(RankThread& self) {
  conductor.release();
  self.wake.acquire();
  if (unwinding) throw Leave{};
}

void Cluster::State::fail(RankThread& self, const std::string& message) {
  if (misuse.empty()) misuse = message;
  for (;;) yield(self);  // until yield() throws Leave
}

void Cluster::State::call(int rank, std::span<float> data, int root) {
  RankThread& self = at(rank);
  if (unwinding) throw Leave{};
  const std::size_t number = self.next++;
  if (number == calls.size()) {
    Call fresh;
    fresh.root = root;
    fresh.elements = data.size();
    fresh.given.resize(ranks.size());
    fresh.called.resize(ranks.size());
    calls.push_back(fresh);
  }
  Call& call = calls[number];
  if (call.root != root || call.elements != data.size()) {
    Call mine;
    mine.root = root;
    mine.elements = data.size();
    const auto first = std::find(call.called.begin(), call.called.end(), true);
    fail(self, "collective #" + std::to_string(number) + ": rank " + std::to_string(rank) +
                   " calls " + mine.name() + ", rank " +
                   std::to_string(first - call.called.begin()) + " calls " + call.name());
  }
  call.called[std::size_t(rank)] = true;
  call.given[std::size_t(rank)].assign(data.begin(), data.end());
  call.latest = std::max(call.latest, self.clock);
  self.buffers.resize(number + 1);
  self.pending.resize(number + 1);
  self.buffers[number] = data;
  self.pending[number] = true;
  if (std::find(call.called.begin(), call.called.end(), false) == call.called.end())
    complete(call, number);
  yield(self);
}

void Cluster::State::complete(Call& call, std::size_t number) {
  const double n = options.world, bytes = 4.0 * double(call.elements);
  const double steps = call.root < 0 ? 2 * (n - 1) : n - 1;
  call.complete = true;
  call.begin = std::max(call.latest, network_free);
  call.end = network_free = call.begin + steps * (options.alpha + options.beta * bytes / n);
  call.result = call.given[std::size_t(std::max(call.root, 0))];
  if (call.root < 0)
    for (std::size_t r = 1; r < ranks.size(); ++r)
      for (std::size_t i = 0; i < call.elements; ++i) call.result[i] += call.given[r][i];
  for (RankThread& rank : ranks)
    if (rank.state == RankThread::blocked && rank.waits_for == number)
      rank.state = RankThread::ready;
}

void Cluster::State::wait(int rank, std::size_t number) {
  RankThread& self = at(rank);
  if (unwinding) throw Leave{};
  if (!self.pending[number]) return;  // a repeated wait is a no-op
  if (!calls[number].complete) {
    self.state = RankThread::blocked;
    self.waits_for = number;
    yield(self);
  }
  const Call& call = calls[number];
  const std::span<float> data = self.buffers[number];
  const std::vector<float>& given = call.given[std::size_t(rank)];
  for (std::size_t i = 0; i < data.size(); ++i)
    if (std::memcmp(&data[i], &given[i], sizeof(float)) != 0)
      fail(self, "rank " + std::to_string(rank) + " wrote to element " + std::to_string(i) +
                     " of collective #" + std::to_string(number) + " (" + call.name() +
                     ") between its start and its wait");
  std::copy(call.result.begin(), call.result.end(), data.begin());
  self.pending[number] = false;
  self.clock = std::max(self.clock, call.end);
}

std::vector<Wait> Cluster::State::waits() {
  std::vector<Wait> all;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const RankThread& rank = ranks[r];
    Wait wait{int(r), {}, {}, rank.state == RankThread::done};
    if (rank.state == RankThread::blocked && rank.waits_for == kEndOfStep) {
      wait.what = "has ended step " + std::to_string(rank.steps - 1) + ", waits for";
      for (std::size_t p = 0; p < ranks.size(); ++p)
        if (ranks[p].steps < rank.steps) wait.peers.push_back(int(p));
    } else if (rank.state == RankThread::blocked) {
      const Call& call = calls[rank.waits_for];
      wait.what = "in step " + std::to_string(rank.steps) + ", waits in collective #" +
                  std::to_string(rank.waits_for) + " (" + call.name() + ") for";
      for (std::size_t p = 0; p < ranks.size(); ++p)
        if (!call.called[p]) wait.peers.push_back(int(p));
    }
    for (std::size_t i = 0; i < wait.peers.size(); ++i)
      wait.what += (i ? ", " : " rank ") + std::to_string(wait.peers[i]);
    all.push_back(wait);
  }
  return all;
}

void Cluster::State::resume(RankThread& rank) {
  rank.wake.release();
  conductor.acquire();
}

void Cluster::State::end_all(const std::string& hang) {
  unwinding = true;
  for (RankThread& rank : ranks)
    while (rank.state != RankThread::done) resume(rank);
  for (RankThread& rank : ranks) rank.thread.join();
  for (const RankThread& rank : ranks)
    if (rank.failure) std::rethrow_exception(rank.failure);
  if (!misuse.empty()) throw Misuse{misuse};
  throw Hang{hang};
}

}  // namespace kit
