#include "runtime/comm/analysis/player.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <set>

#include "runtime/base/error.hpp"
#include "runtime/comm/schedule/nodes.hpp"

namespace ringsmith::comm {

namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// Contributions that also remembers each message and the value it left.
class Recorder : public Contributions {
 public:
  Recorder(const Schedule& schedule, Playback& playback)
      : Contributions(schedule), schedule_(schedule), playback_(playback) {
    steps_ = 0;
    for (const auto& steps : schedule.steps) steps_ = std::max(steps_, steps.size());
    std::vector<std::vector<Value>> before(at(schedule.world));
    for (int rank = 0; rank < schedule.world; ++rank)
      for (int chunk = 0; chunk < static_cast<int>(schedule.chunks.size()); ++chunk)
        before[at(rank)].push_back(value(rank, chunk));
    playback.states.assign(steps_ + 1, before);
  }

  void received(int rank, int step, int sender, int sender_step) override {
    Contributions::received(rank, step, sender, sender_step);
    const Step& taken = schedule_.steps[at(rank)][at(step)];
    const bool local = sender == rank;
    playback_.messages.push_back(
        {sender, sender_step,
         local ? taken.recv_chunk : schedule_.steps[at(sender)][at(sender_step)].send_chunk, rank,
         step, taken.recv_chunk, taken.action, local, taken.chunks});
    for (std::size_t s = at(step) + 1; s <= steps_; ++s)
      for (int chunk = taken.recv_chunk; chunk < taken.recv_chunk + taken.chunks; ++chunk)
        playback_.states[s][at(rank)][at(chunk)] = value(rank, chunk);
  }

 private:
  const Schedule& schedule_;
  Playback& playback_;
  std::size_t steps_ = 0;
};

// "c2", or "c2-5" for a message of several chunks.
std::string chunks_in(int first, int chunks) {
  return chunks == 1 ? fmt::format("c{}", first) : fmt::format("c{}-{}", first, first + chunks - 1);
}

// "0.2." : one character for each rank that could have contributed.
std::string ranks_in(const Value& value, int world) {
  constexpr const char* kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  std::string out(at(world), '.');
  for (const Origin& origin : value)
    if (origin.rank >= 0) out[at(origin.rank)] = kDigits[origin.rank];
  return out;
}

std::string count_of(const Value& value) {
  std::set<int> ranks;
  for (const Origin& origin : value)
    if (origin.rank >= 0) ranks.insert(origin.rank);
  return std::to_string(ranks.size());
}

class TextTable {
 public:
  TextTable(const Schedule& schedule, const Playback& playback, TextStyle style)
      : schedule_(schedule), playback_(playback), style_(style) {
    peer_width_ = std::to_string(schedule.world - 1).size();
    chunk_width_ = std::to_string(std::max<std::size_t>(schedule.chunks.size(), 1) - 1).size();
    for (const auto& steps : schedule.steps)
      for (const Step& step : steps)
        if (step.chunks > 1) run_width_ = chunk_width_ + 1;
    const std::size_t fixed = 6 + 2 * action_width() + 4;
    const std::size_t room = style.width > fixed ? style.width - fixed : 0;
    const std::size_t chunks = std::max<std::size_t>(schedule.chunks.size(), 1);
    const auto world = at(schedule.world);
    if (schedule.world <= 36 && (std::max(world, chunk_width_ + 1) + 1) * chunks <= room)
      cell_ = std::max(world, chunk_width_ + 1);
    else if ((std::max(peer_width_ + 1, chunk_width_ + 1) + 1) * chunks <= room)
      cell_ = std::max(peer_width_ + 1, chunk_width_ + 1), counts_ = true;
  }

  std::string text() {
    std::string out = title_of(schedule_) + "\n";
    out += counts_     ? "chunk states: how many ranks' contributions each chunk holds\n"
           : cell_ > 0 ? "chunk states: whose contributions each chunk holds after the step\n"
                       : "chunk states do not fit this terminal: a wider one, or fewer ranks\n";
    if (!schedule_.node_of.empty()) out += nodes();
    if (cell_ > 0) {
      out += "\nat the start\n" + header();
      for (int rank = 0; rank < schedule_.world; ++rank) out += line(-1, rank);
    }
    for (int step = 0; step + 1 < static_cast<int>(playback_.states.size()); ++step) {
      out += fmt::format("\nstep {}\n", step) + header();
      for (int rank = 0; rank < schedule_.world; ++rank) out += line(step, rank);
    }
    if (playback_.states.size() == 1) out += "\nno steps: one rank already has the result\n";
    return out;
  }

 private:
  std::size_t action_width() const { return chunk_width_ + run_width_ + 4 + peer_width_ + 4; }

  // "nodes: 0-3 | 4-7"
  std::string nodes() const {
    std::string out;
    for (const auto& ranks : ranks_of_nodes(schedule_.node_of, schedule_.world)) {
      std::string node;
      for (const int rank : ranks) node += (node.empty() ? "" : " ") + std::to_string(rank);
      out += (out.empty() ? "nodes: " : " | ") + node;
    }
    return out + "\n";
  }

  std::string header() const {
    std::string out = fmt::format("{:<6}{:<{}}{:<{}}", "rank", "sends", action_width(), "receives",
                                  action_width() + 4);
    if (cell_ > 0)
      for (std::size_t c = 0; c < schedule_.chunks.size(); ++c)
        out += fmt::format("{:<{}} ", "c" + std::to_string(c), cell_);
    return strip(out) + "\n";
  }

  std::string line(int step, int rank) const {
    std::string sends, receives;
    if (step >= 0 && at(step) < schedule_.steps[at(rank)].size()) {
      const Step& s = schedule_.steps[at(rank)][at(step)];
      if (s.sends())
        sends = fmt::format("{} -> {}", chunks_in(s.send_chunk, s.chunks), s.send_peer);
      if (s.receives())
        receives = fmt::format("{} {} {}", chunks_in(s.recv_chunk, s.chunks),
                               s.action == Action::reduce ? "+=" : "<-",
                               s.recv_peer == rank ? "own" : std::to_string(s.recv_peer));
    }
    std::string out =
        fmt::format("{:<6}{:<{}}{:<{}}", rank, sends, action_width(), receives, action_width() + 4);
    if (cell_ > 0)
      for (int c = 0; c < static_cast<int>(schedule_.chunks.size()); ++c)
        out += cell(step, rank, c);
    return strip(out) + "\n";
  }

  std::string cell(int step, int rank, int chunk) const {
    const Value& value = playback_.states[at(step + 1)][at(rank)][at(chunk)];
    const std::string text = counts_ ? count_of(value) : ranks_in(value, schedule_.world);
    std::string out = fmt::format("{:<{}} ", text, cell_);
    if (!style_.colour) return out;
    const bool changed = step >= 0 && value != playback_.states[at(step)][at(rank)][at(chunk)];
    const bool complete = value == promised_value(schedule_, rank, chunk);
    if (complete) out = "\033[32m" + out + "\033[0m";
    return changed ? "\033[1m" + out + "\033[0m" : out;
  }

  static std::string strip(std::string text) {
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  }

  const Schedule& schedule_;
  const Playback& playback_;
  TextStyle style_;
  std::size_t peer_width_ = 1, chunk_width_ = 1;
  std::size_t run_width_ = 0;  // of "-5", if a message carries several chunks
  std::size_t cell_ = 0;       // characters of a chunk's state; 0: not shown
  bool counts_ = false;
};

}  // namespace

Playback play(const Schedule& schedule) {
  Playback playback;
  Recorder recorder(schedule, playback);
  require(interpret(schedule, {}, recorder).empty(),
          "the schedule does not finish: the checker says why");
  return playback;
}

std::string title_of(const Schedule& schedule) {
  const auto plural = [](std::size_t n, const char* noun) {
    return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
  };
  return fmt::format("{} {}, {}, {} in {}", schedule.algorithm, name_of(schedule.collective),
                     plural(at(schedule.world), "rank"), plural(schedule.count, "element"),
                     plural(schedule.chunks.size(), "chunk"));
}

std::string render_text(const Schedule& schedule, const Playback& playback, TextStyle style) {
  return TextTable(schedule, playback, style).text();
}

}  // namespace ringsmith::comm
