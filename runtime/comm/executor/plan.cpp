#include "runtime/comm/executor/plan.hpp"

#include <algorithm>
#include <deque>

#include "runtime/base/error.hpp"

namespace ringsmith::comm {

namespace {

struct ChunkState {
  Source::Kind where = Source::Kind::input;
  bool raw = true;
  int writer = -1;  // index of the move that wrote it last
};

bool empty(const Schedule& schedule, int chunk) { return schedule.chunks[at(chunk)].count == 0; }

using RawFlags = std::vector<std::vector<std::deque<bool>>>;  // [from][to][message]

// Simulates all ranks with one bit per message, which tells whether the message is a rank's
// unreduced contribution. Throws what make_plans() throws.
RawFlags trace_raw_messages(const Schedule& schedule) {
  const std::size_t world = at(schedule.world);
  RawFlags sent(world, std::vector<std::deque<bool>>(world));
  std::vector<std::vector<std::size_t>> received(world, std::vector<std::size_t>(world, 0));
  std::vector<std::vector<bool>> raw(world, std::vector<bool>(schedule.chunks.size(), true));
  std::vector<std::size_t> next(world, 0);
  std::vector<bool> posted(world, false);  // by rank: whether its next step has sent
  for (bool progress = true; progress;) {
    progress = false;
    for (std::size_t rank = 0; rank < world; ++rank) {
      while (next[rank] < schedule.steps[rank].size()) {
        const Step& step = schedule.steps[rank][next[rank]];
        if (!posted[rank] && step.sends() && !empty(schedule, step.send_chunk))
          sent[rank][at(step.send_peer)].push_back(schedule.separate_input ||
                                                   raw[rank][at(step.send_chunk)]);
        posted[rank] = true;
        if (step.receives() && !empty(schedule, step.recv_chunk)) {
          bool message = true;
          if (at(step.recv_peer) != rank) {
            const auto& queue = sent[at(step.recv_peer)][rank];
            std::size_t& taken = received[at(step.recv_peer)][rank];
            if (taken == queue.size()) break;
            message = queue[taken++];
          }
          raw[rank][at(step.recv_chunk)] = step.action == Action::copy && message;
        }
        posted[rank] = false;
        ++next[rank];
        progress = true;
      }
    }
  }
  for (std::size_t rank = 0; rank < world; ++rank) {
    if (next[rank] < schedule.steps[rank].size())
      throw Error("schedule " + std::string(name_of(schedule.algorithm)) + ": rank " +
                  std::to_string(rank) + " waits forever at step " + std::to_string(next[rank]));
    for (std::size_t to = 0; to < world; ++to)
      if (sent[rank][to].size() != received[rank][to])
        throw Error("schedule " + std::string(name_of(schedule.algorithm)) + ": rank " +
                    std::to_string(rank) + " sends more messages to rank " + std::to_string(to) +
                    " than it expects");
  }
  return sent;
}

// The largest number of messages to one peer that a plan may send before receives that precede them
// in the schedule. Each occupies a slot until the peer takes it. More early messages than slots
// could deadlock a schedule that is proved free of deadlock.
constexpr int kMostEarly = 2;

class Replay {
 public:
  Replay(const Schedule& schedule, int rank, const RawFlags& raw_flags)
      : schedule_(schedule),
        rank_(rank),
        raw_flags_(raw_flags),
        state_(schedule.chunks.size()),
        received_(at(schedule.world), 0),
        early_(at(schedule.world), 0) {}

  Plan run() {
    const auto& steps = schedule_.steps[at(rank_)];
    for (std::size_t s = 0; s < steps.size(); ++s) {
      step_ = static_cast<int>(s);
      if (steps[s].sends() && !empty(schedule_, steps[s].send_chunk)) send(steps[s]);
      if (steps[s].receives() && !empty(schedule_, steps[s].recv_chunk)) receive(steps[s]);
    }
    add_local_copies();
    drop_dead_stores();
    leave_passed_on_raw();
    return std::move(moves_);
  }

 private:
  [[nodiscard]] Source current(int chunk) const {
    if (schedule_.separate_input) return {Source::Kind::input, kNobody, chunk, true};
    const ChunkState& state = state_[at(chunk)];
    return {state.where, kNobody, chunk, state.raw};
  }

  void send(const Step& step) {
    const int peer = step.send_peer, chunk = step.send_chunk;
    // The move that computes the chunk may also send it, unless the message would overtake another
    // one to this peer.
    const int writer = schedule_.separate_input ? -1 : state_[at(chunk)].writer;
    const auto sends_to_peer = [peer](const Move& m) {
      return std::count(m.sends.begin(), m.sends.end(), peer) > 0;
    };
    if (writer >= 0 && std::none_of(moves_.begin() + writer, moves_.end(), sends_to_peer)) {
      const bool early = std::any_of(moves_.begin() + writer + 1, moves_.end(), receives_any);
      if (!early || early_[at(peer)]++ < kMostEarly) {
        moves_[at(writer)].sends.push_back(peer);
        return;
      }
    }
    if (!moves_.empty() && writer < 0 && moves_.back().sources.size() == 1 &&
        moves_.back().sources[0].kind == Source::Kind::input && moves_.back().chunk == chunk &&
        !sends_to_peer(moves_.back())) {
      moves_.back().sends.push_back(peer);
      return;
    }
    moves_.push_back({chunk, {current(chunk)}, {peer}, false, step_});
  }

  static bool receives_any(const Move& move) {
    return std::any_of(move.sources.begin(), move.sources.end(),
                       [](const Source& s) { return s.kind == Source::Kind::message; });
  }

  void receive(const Step& step) {
    const int chunk = step.recv_chunk;
    // A receive from this rank itself takes its own contribution; no message is sent.
    Source message{Source::Kind::input, kNobody, chunk, true};
    if (step.recv_peer != rank_) {
      const std::size_t number = received_[at(step.recv_peer)]++;
      message = {Source::Kind::message, step.recv_peer, chunk,
                 raw_flags_[at(step.recv_peer)][at(rank_)][number]};
    }
    ChunkState& state = state_[at(chunk)];
    if (step.action == Action::copy) {
      moves_.push_back({chunk, {message}, {}, true, step_});
    } else if (can_extend(state.writer, step)) {
      // Moves the merged move to the end, because the sends before it must not wait for the new
      // receive.
      Move move = std::move(moves_[at(state.writer)]);
      moves_.erase(moves_.begin() + state.writer);
      for (ChunkState& other : state_)
        if (other.writer > state.writer) --other.writer;
      move.sources.push_back(message);
      move.step = step_;
      moves_.push_back(std::move(move));
    } else {
      Source own = current(chunk);
      own.kind = state.where;
      own.scaled = state.raw;
      moves_.push_back({chunk, {own, message}, {}, true, step_});
    }
    state = {Source::Kind::work, step.action == Action::copy && message.scaled,
             static_cast<int>(moves_.size()) - 1};
  }

  // True if the move that last wrote the chunk can take one more source. It cannot if its value has
  // been sent, if it already has a message from this peer, or if a later move reads anything but
  // input.
  [[nodiscard]] bool can_extend(int writer, const Step& step) const {
    if (writer < 0) return false;
    const Move& move = moves_[at(writer)];
    if (!move.sends.empty()) return false;
    for (const Source& s : move.sources)
      if (s.kind == Source::Kind::message && s.peer == step.recv_peer) return false;
    for (std::size_t m = at(writer) + 1; m < moves_.size(); ++m)
      for (const Source& s : moves_[m].sources)
        if (s.kind != Source::Kind::input) return false;
    return true;
  }

  // Adds moves for promised chunks that no message carries, e.g. a rank's own part of an
  // all_gather.
  void add_local_copies() {
    for (int c = 0; c < static_cast<int>(state_.size()); ++c)
      if (!empty(schedule_, c) && state_[at(c)].writer < 0 && promised(schedule_, rank_, c))
        moves_.push_back({c, {{Source::Kind::input, kNobody, c, true}}, {}, true, step_});
  }

  void drop_dead_stores() {
    std::vector<bool> needed(state_.size());
    for (std::size_t c = 0; c < needed.size(); ++c)
      needed[c] = promised(schedule_, rank_, static_cast<int>(c));
    for (std::size_t m = moves_.size(); m-- > 0;) {
      Move& move = moves_[m];
      if (move.keep) {
        move.keep = needed[at(move.chunk)];
        needed[at(move.chunk)] = false;
      }
      for (const Source& s : move.sources)
        if (s.kind == Source::Kind::work) needed[at(s.chunk)] = true;
    }
  }

  // Removes avg's factor from moves with one source, because the receiver that reduces the value
  // applies it. In a world of one rank there is no receiver.
  void leave_passed_on_raw() {
    if (schedule_.world == 1) return;
    for (Move& move : moves_)
      if (move.sources.size() == 1) move.sources[0].scaled = false;
  }

  const Schedule& schedule_;
  int rank_;
  const RawFlags& raw_flags_;
  int step_ = 0;
  Plan moves_;
  std::vector<ChunkState> state_;
  std::vector<std::size_t> received_;  // messages so far, by peer
  std::vector<int> early_;             // sends that were moved before a receive, by peer
};

}  // namespace

std::vector<Plan> make_plans(const Schedule& whole) {
  const Schedule schedule = one_chunk_steps(whole);
  const RawFlags raw_flags = trace_raw_messages(schedule);
  std::vector<Plan> plans;
  plans.reserve(at(schedule.world));
  for (int rank = 0; rank < schedule.world; ++rank)
    plans.push_back(Replay(schedule, rank, raw_flags).run());
  return plans;
}

bool given(const Schedule& schedule, int rank, int chunk) {
  return holds(contract_of(schedule.collective).input, rank, schedule.root, chunk);
}

bool promised(const Schedule& schedule, int rank, int chunk) {
  return holds(contract_of(schedule.collective).output, rank, schedule.root, chunk);
}

namespace {

std::size_t chunk_offset(Extent extent, const Schedule& schedule, int rank, int chunk) {
  return schedule.chunks[at(chunk)].offset -
         (extent == Extent::own ? schedule.chunks[at(rank)].offset : 0);
}

}  // namespace

std::size_t input_offset(const Schedule& schedule, int rank, int chunk) {
  return chunk_offset(contract_of(schedule.collective).input, schedule, rank, chunk);
}

std::size_t output_offset(const Schedule& schedule, int rank, int chunk) {
  return chunk_offset(contract_of(schedule.collective).output, schedule, rank, chunk);
}

}  // namespace ringsmith::comm
