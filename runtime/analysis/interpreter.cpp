#include "runtime/analysis/interpreter.hpp"

#include <algorithm>
#include <deque>
#include <unordered_map>

namespace ringsmith::comm {

namespace {

class Interpreter {
 public:
  Interpreter(const Schedule& schedule, LinkModel wires, Observer& observer)
      : schedule_(schedule), wires_(wires), observer_(observer), ranks_(schedule.steps.size()) {}

  std::vector<Blocked> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
        while (advance(rank)) moved = true;
    }
    std::vector<Blocked> blocked;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      const StepProgress& state = at(rank);
      const Step* step = current(rank);
      if (step == nullptr) continue;
      const bool sending = !state.sent;
      blocked.push_back({rank, state.step, sending, sending ? step->send_peer : step->recv_peer});
    }
    return blocked;
  }

 private:
  struct StepProgress {
    int step = 0;
    bool sent = false, received = false;  // the two parts of the current step
  };

  StepProgress& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  std::deque<int>& connection(int from, int to) {
    return connections_[static_cast<std::size_t>(from) * ranks_.size() +
                        static_cast<std::size_t>(to)];
  }
  const Step* current(int rank) {
    const auto& steps = schedule_.steps[static_cast<std::size_t>(rank)];
    const auto step = static_cast<std::size_t>(at(rank).step);
    return step < steps.size() ? &steps[step] : nullptr;
  }

  // A receive may begin when the send part of its step is complete, or concurrently with that part
  // if messages are streamed.
  bool waits_for(int rank, int sender) {
    const Step* step = current(rank);
    const StepProgress& state = at(rank);
    return step != nullptr && step->recv_peer == sender && !state.received &&
           (state.sent || !step->sends() || wires_.streamed);
  }

  bool may_send(int rank, int peer) {
    const auto& queue = connection(rank, peer);
    if (wires_.slots == LinkModel::kUnlimited) return true;
    if (wires_.slots == 0) return queue.empty() && waits_for(peer, rank);
    return static_cast<int>(queue.size()) < wires_.slots;
  }

  bool advance(int rank) {
    const Step* step = current(rank);
    if (step == nullptr) return false;
    StepProgress& state = at(rank);
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
  LinkModel wires_;
  Observer& observer_;
  std::vector<StepProgress> ranks_;
  // from * world + to -> steps of the messages that are posted and not yet received.
  std::unordered_map<std::size_t, std::deque<int>> connections_;
};

}  // namespace

std::vector<Blocked> interpret(const Schedule& schedule, LinkModel wires, Observer& observer) {
  return Interpreter(schedule, wires, observer).run();
}

std::vector<Blocked> interpret(const Schedule& schedule, LinkModel wires) {
  Observer nobody;
  return interpret(schedule, wires, nobody);
}

Contributions::Contributions(const Schedule& schedule)
    : schedule_(schedule),
      values_(static_cast<std::size_t>(schedule.world) * schedule.chunks.size()),
      written_(values_.size(), -1) {
  for (int rank = 0; rank < schedule.world; ++rank)
    for (int chunk = 0; chunk < static_cast<int>(schedule.chunks.size()); ++chunk)
      values_[index(rank, chunk)] =
          schedule.separate_input ? Value{kUndefined} : initial_value(schedule, rank, chunk);
}

std::size_t Contributions::index(int rank, int chunk) const {
  return static_cast<std::size_t>(rank) * schedule_.chunks.size() + static_cast<std::size_t>(chunk);
}

const Value& Contributions::value(int rank, int chunk) const { return values_[index(rank, chunk)]; }

int Contributions::last_written(int rank, int chunk) const { return written_[index(rank, chunk)]; }

void Contributions::posted(int rank, int step) {
  const Step& sent =
      schedule_.steps[static_cast<std::size_t>(rank)][static_cast<std::size_t>(step)];
  std::vector<Value>& message = in_flight_[{rank, step}];
  for (int chunk = sent.send_chunk; chunk < sent.send_chunk + sent.chunks; ++chunk)
    message.push_back(schedule_.separate_input ? initial_value(schedule_, rank, chunk)
                                               : value(rank, chunk));
}

void Contributions::received(int rank, int step, int sender, int sender_step) {
  const Step& taken =
      schedule_.steps[static_cast<std::size_t>(rank)][static_cast<std::size_t>(step)];
  for (int i = 0; i < taken.chunks; ++i) {
    const int chunk = taken.recv_chunk + i;
    Value arrived =
        sender == rank
            ? initial_value(schedule_, rank, chunk)
            : std::move(in_flight_.at({sender, sender_step})[static_cast<std::size_t>(i)]);
    take(rank, step, chunk, std::move(arrived));
  }
  if (sender != rank) in_flight_.erase({sender, sender_step});
}

void Contributions::take(int rank, int step, int chunk, Value arrived) {
  Value& mine = values_[index(rank, chunk)];
  written_[index(rank, chunk)] = step;
  const Step& taken =
      schedule_.steps[static_cast<std::size_t>(rank)][static_cast<std::size_t>(step)];
  if (taken.action == Action::reduce) {
    arrived.insert(arrived.end(), mine.begin(), mine.end());
    std::sort(arrived.begin(), arrived.end());
  } else {
    Value lost;
    std::set_difference(mine.begin(), mine.end(), arrived.begin(), arrived.end(),
                        std::back_inserter(lost));
    lost.erase(std::remove(lost.begin(), lost.end(), kUndefined), lost.end());
    if (!lost.empty()) losses_.push_back({rank, step, chunk, lost});
  }
  mine = std::move(arrived);
}

Value initial_value(const Schedule& schedule, int rank, int chunk) {
  const Extent input = contract_of(schedule.collective).input;
  return {holds(input, rank, schedule.root, chunk) ? Origin{rank, chunk} : kUndefined};
}

Value promised_value(const Schedule& schedule, int rank, int chunk) {
  const Contract contract = contract_of(schedule.collective);
  if (!holds(contract.output, rank, schedule.root, chunk)) return {};
  const Origins origins = origins_of(contract, schedule.world, schedule.root, chunk);
  Value sum;
  for (int r = origins.first; r < origins.last; ++r)
    sum.push_back({r, contract.exchanges ? rank : chunk});
  return sum;
}

}  // namespace ringsmith::comm
