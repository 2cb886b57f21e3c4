#include "labs/kit/fabric/fabric.hpp"

#include <stdexcept>

#include "labs/kit/fabric/fabric_state.hpp"

namespace kit {

Fabric::Fabric(const FabricOptions& options) : state_(std::make_unique<State>(options)) {
  for (Rank& rank : state_->ranks) rank.from.resize(std::size_t(options.world));
}
Fabric::~Fabric() = default;

void Fabric::begin(int rank, const char* operation) {
  Rank& self = state_->at(rank);
  self.operation = operation;
  ++self.sequence;
  self.step = -1;
}

void Fabric::run(const std::function<void(Link&)>& body) {
  State& state = *state_;
  for (int r = 0; r < state.options.world; ++r) {
    state.at(r).thread = std::thread([this, &state, &body, r] {
      Rank& self = state.at(r);
      self.wake.acquire();
      try {
        Link link(*this, r, state.options.world);
        if (!state.unwinding) body(link);
      } catch (const Unwind&) {
      } catch (const std::exception& error) {
        self.failure = std::make_exception_ptr(
            std::runtime_error("rank " + std::to_string(r) + " threw: " + error.what()));
      } catch (...) {
        self.failure = std::current_exception();
      }
      self.state = Rank::done;
      state.conductor.release();
    });
  }
  for (;;) {
    std::vector<Rank*> ready;
    bool all_done = true, failed = false;
    for (Rank& rank : state.ranks) {
      if (rank.state == Rank::ready) ready.push_back(&rank);
      all_done &= rank.state == Rank::done;
      failed |= rank.failure != nullptr;
    }
    if (all_done && !failed) break;
    state.fail_if_stuck(!ready.empty() && !failed);
    state.resume(*ready[state.random() % ready.size()]);
  }
  for (Rank& rank : state.ranks) rank.thread.join();
}

void Link::call(int to, const void* out, std::size_t out_count, int from, void* in,
                std::size_t in_count, std::size_t element) {
  Fabric::State& state = *fabric_.state_;
  Rank& self = state.at(rank_);
  if (state.unwinding) throw Unwind{};
  ++self.step;
  ++self.calls;
  for (const int peer : {to, from})
    if (peer >= world_ || peer < -1 || peer == rank_)
      throw std::out_of_range(peer == rank_ ? "a message to itself"
                                            : "there is no rank " + std::to_string(peer) +
                                                  " in a world of " + std::to_string(world_));
  if (to < 0 && from < 0) throw std::out_of_range("there is no rank -1");
  self.sending = {
      to, static_cast<const std::byte*>(out), nullptr, out_count, element, self.clock, 0, to < 0};
  self.receiving = {from, nullptr, static_cast<std::byte*>(in), in_count, element, self.clock,
                    0,    from < 0};
  self.state = Rank::blocked;
  if (to >= 0) {
    state.pair(rank_, to).send = &self.sending;
    state.advance(rank_, to);
  }
  if (from >= 0) {
    state.pair(from, rank_).recv = &self.receiving;
    state.advance(from, rank_);
  }
  // Even if the call is complete, another rank may run first.
  state.conductor.release();
  self.wake.acquire();
  if (state.unwinding) throw Unwind{};
}

void Fabric::observe(Observation& out) const {
  std::vector<std::int64_t> sent, received, messages, calls, sources;
  std::vector<double> finish;
  for (const Rank& rank : state_->ranks) {
    sent.push_back(rank.sent_bytes);
    received.push_back(rank.received_bytes);
    messages.push_back(rank.messages);
    calls.push_back(rank.calls);
    std::int64_t different = 0;
    for (const std::int64_t n : rank.from) different += n > 0;
    sources.push_back(different);
    finish.push_back(rank.clock);
  }
  out.put("sent_bytes", sent);
  out.put("received_bytes", received);
  out.put("messages", messages);
  out.put("calls", calls);
  out.put("sources", sources);
  out.put("finish", finish);
}

FabricOptions fabric_options(const Request& in) {
  FabricOptions options;
  options.world = int(in.integer("world"));
  options.capacity = int(in.integer("capacity", 0));
  options.seed = std::uint64_t(in.integer("seed", 1));
  options.alpha = in.number("alpha", options.alpha);
  options.beta = in.number("beta", options.beta);
  options.jitter = in.number("jitter", options.jitter);
  return options;
}

}  // namespace kit
