#include "runtime/comm/analysis/interpreter.hpp"

#include <deque>
#include <unordered_map>

namespace ringsmith::comm {

namespace {

class Interpreter {
 public:
  Interpreter(const Schedule& schedule, Wires wires, Observer& observer)
      : schedule_(schedule), wires_(wires), observer_(observer), ranks_(schedule.steps.size()) {}

  std::vector<Blocked> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
        while (advance(rank)) moved = true;
    }
    std::vector<Blocked> blocked;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      const State& state = at(rank);
      const Step* step = current(rank);
      if (step == nullptr) continue;
      const bool sending = !state.sent;
      blocked.push_back({rank, state.step, sending, sending ? step->send_peer : step->recv_peer});
    }
    return blocked;
  }

 private:
  struct State {
    int step = 0;
    bool sent = false, received = false;  // the two parts of the current step
  };

  State& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  std::deque<int>& connection(int from, int to) {
    return connections_[static_cast<std::size_t>(from) * ranks_.size() +
                        static_cast<std::size_t>(to)];
  }
  const Step* current(int rank) {
    const auto& steps = schedule_.steps[static_cast<std::size_t>(rank)];
    const auto step = static_cast<std::size_t>(at(rank).step);
    return step < steps.size() ? &steps[step] : nullptr;
  }

  // A receive may begin when the send part is through, or beside it when streamed.
  bool waits_for(int rank, int sender) {
    const Step* step = current(rank);
    const State& state = at(rank);
    return step != nullptr && step->recv_peer == sender && !state.received &&
           (state.sent || !step->sends() || wires_.streamed);
  }

  bool may_send(int rank, int peer) {
    const auto& queue = connection(rank, peer);
    if (wires_.slots == Wires::kUnlimited) return true;
    if (wires_.slots == 0) return queue.empty() && waits_for(peer, rank);
    return static_cast<int>(queue.size()) < wires_.slots;
  }

  // Does whatever part of the current step is possible; true if something happened.
  bool advance(int rank) {
    const Step* step = current(rank);
    if (step == nullptr) return false;
    State& state = at(rank);
    bool moved = false;
    if (!state.sent && (!step->sends() || may_send(rank, step->send_peer))) {
      state.sent = moved = true;
      if (step->sends()) {
        connection(rank, step->send_peer).push_back(state.step);
        observer_.posted(rank, state.step);
      }
    }
    if (!state.received && (state.sent || wires_.streamed)) {
      if (!step->receives() || step->recv_peer == rank) {
        state.received = moved = true;
        if (step->receives()) observer_.received(rank, state.step, rank, state.step);
      } else if (auto& queue = connection(step->recv_peer, rank); !queue.empty()) {
        state.received = moved = true;
        observer_.received(rank, state.step, step->recv_peer, queue.front());
        queue.pop_front();
      }
    }
    if (state.sent && state.received) state = {state.step + 1, false, false};
    return moved;
  }

  const Schedule& schedule_;
  Wires wires_;
  Observer& observer_;
  std::vector<State> ranks_;
  // from * world + to -> steps of the messages that are posted and not yet received.
  std::unordered_map<std::size_t, std::deque<int>> connections_;
};

}  // namespace

std::vector<Blocked> interpret(const Schedule& schedule, Wires wires, Observer& observer) {
  return Interpreter(schedule, wires, observer).run();
}

std::vector<Blocked> interpret(const Schedule& schedule, Wires wires) {
  Observer nobody;
  return interpret(schedule, wires, nobody);
}

}  // namespace ringsmith::comm
