#include "labs/kit/cluster/cluster.hpp"

#include <algorithm>
#include <stdexcept>

#include "labs/kit/cluster/cluster_state.hpp"
#include "labs/kit/driver.hpp"

namespace kit {

Cluster::Cluster(const ClusterOptions& options) : state_(std::make_unique<State>(options)) {}
Cluster::~Cluster() = default;

void Cluster::run(const std::function<void(Group&)>& body) {
  State& state = *state_;
  for (int r = 0; r < state.options.world; ++r)
    state.at(r).thread = std::thread([this, &state, &body, r] {
      RankThread& self = state.at(r);
      self.wake.acquire();
      try {
        Group group(*this, r, state.options.world);
        if (!state.unwinding) body(group);
      } catch (const Leave&) {
      } catch (const std::exception& error) {
        self.failure = std::make_exception_ptr(
            std::runtime_error("rank " + std::to_string(r) + " threw: " + error.what()));
      } catch (...) {
        self.failure = std::current_exception();
      }
      self.state = RankThread::done;
      state.conductor.release();
    });
  for (;;) {
    std::vector<RankThread*> ready;
    bool all_done = true, failed = !state.misuse.empty();
    for (RankThread& rank : state.ranks) {
      if (rank.state == RankThread::ready) ready.push_back(&rank);
      all_done &= rank.state == RankThread::done;
      failed |= rank.failure != nullptr;
    }
    if (all_done && !failed) break;
    if (failed) state.end_all("");
    if (ready.empty()) state.end_all("no rank can continue\n" + describe(state.waits()));
    state.resume(*ready[state.random() % ready.size()]);
  }
  for (RankThread& rank : state.ranks) rank.thread.join();
}

Work Group::all_reduce(std::span<float> data) {
  cluster_.state_->call(rank_, data, -1);
  return {cluster_, rank_, cluster_.state_->at(rank_).next - 1};
}

void Group::broadcast(std::span<float> data, int root) {
  if (root < 0 || root >= world_)
    throw std::out_of_range("broadcast: there is no rank " + std::to_string(root) +
                            " in a world of " + std::to_string(world_));
  cluster_.state_->call(rank_, data, root);
  cluster_.state_->wait(rank_, cluster_.state_->at(rank_).next - 1);
}

void Work::wait() { cluster_->state_->wait(rank_, call_); }

void Cluster::compute(int rank, double seconds) {
  RankThread& self = state_->at(rank);
  self.clock += seconds;
  self.computed += seconds;
}

void Cluster::end_of_step(int rank) {
  State& state = *state_;
  RankThread& self = state.at(rank);
  const auto open = std::find(self.pending.begin(), self.pending.end(), true);
  if (open != self.pending.end())
    state.fail(self, "backward is over on rank " + std::to_string(rank) + ", but collective #" +
                         std::to_string(open - self.pending.begin()) +
                         " was not waited for: its result is not ready yet");
  ++self.steps;
  bool all = true;
  for (const RankThread& rank_of : state.ranks) all &= rank_of.steps >= self.steps;
  if (all) {
    for (RankThread& other : state.ranks)
      if (other.state == RankThread::blocked && other.waits_for == kEndOfStep)
        other.state = RankThread::ready;
    return;
  }
  self.state = RankThread::blocked;
  self.waits_for = kEndOfStep;
  state.yield(self);
}

void Cluster::count_from_here(int rank) {
  RankThread& self = state_->at(rank);
  state_->counted_from = self.next;
  self.since = self.clock;
  self.computed = 0;
}

void Cluster::observe(Observation& out) const {
  std::vector<std::int64_t> kinds, elements;
  std::vector<double> begins, ends, finish, computed;
  for (std::size_t i = state_->counted_from; i < state_->calls.size(); ++i) {
    const Call& call = state_->calls[i];
    kinds.push_back(call.root < 0);
    elements.push_back(std::int64_t(call.elements));
    begins.push_back(call.begin - state_->ranks[0].since);
    ends.push_back(call.end - state_->ranks[0].since);
  }
  for (const RankThread& rank : state_->ranks) {
    finish.push_back(rank.clock - rank.since);
    computed.push_back(rank.computed);
  }
  out.put("kinds", kinds);
  out.put("elements", elements);
  out.put("begins", begins);
  out.put("ends", ends);
  out.put("finish", finish);
  out.put("computed", computed);
}

ClusterOptions cluster_options(const Request& in) {
  ClusterOptions options;
  options.world = int(in.integer("world"));
  options.seed = std::uint64_t(in.integer("seed", 1));
  options.alpha = in.number("alpha", 0);
  options.beta = in.number("beta", 0);
  return options;
}

}  // namespace kit
