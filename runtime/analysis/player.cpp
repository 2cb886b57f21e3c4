#include "runtime/analysis/player.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <set>

#include "runtime/base/error.hpp"
#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::comm {

namespace {

// Records each message and the value that it produced.
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

// E.g. "0.2.": one character per rank, '.' if the rank has not contributed.
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
                       : "chunk states do not fit this terminal: use a wider one, or fewer ranks\n";
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

  // E.g. "nodes: 0 1 2 3 | 4 5 6 7".
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
  std::size_t run_width_ = 0;  // width of "-5", if a message carries several chunks
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
  return fmt::format("{} {}, {}, {} in {}", name_of(schedule.algorithm),
                     name_of(schedule.collective), plural(at(schedule.world), "rank"),
                     plural(schedule.count, "element"), plural(schedule.chunks.size(), "chunk"));
}

std::string render_text(const Schedule& schedule, const Playback& playback, TextStyle style) {
  return TextTable(schedule, playback, style).text();
}

// Picture of a schedule: time runs downwards, ranks are side by side.
//
//     step 0   [▤][▤][▤]      [▤][▤][▤]      a cell is a chunk of a rank's buffer; its stripe r
//                  \______________            is filled once it includes rank r's contribution
//     step 1   [▤][▤][▤]      [▤][▤][▤]      an arrow is a message, from the chunk that was
//                                            sent to the chunk it arrives in, one row later

namespace {

// All colours have the same lightness, so that they are visible on both white and black.
std::string hue(int chunk, std::size_t chunks) {
  const double turn = chunks <= 1 ? 0.0 : static_cast<double>(chunk) / static_cast<double>(chunks);
  return fmt::format("hsl({:.0f} 62% 52%)", 360 * std::fmod(turn + 0.56, 1.0));
}

// Plain rules first, for renderers without media queries; then the rules for dark mode.
constexpr const char* kStyle = R"(<style>
  text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2430; }
  .paper { fill: #ffffff; }
  .title { font-size: 17px; font-weight: 600; }
  .note, .step { font-size: 12px; fill: #6d7585; }
  .rank { font-size: 13px; font-weight: 600; text-anchor: middle; }
  .name { font-size: 10px; text-anchor: middle; fill: #6d7585; }
  .cell { fill: #f1f3f7; stroke: #d5d9e2; }
  .done { fill: none; stroke: #1f2430; stroke-width: 1.6; }
  .rule { stroke: #d5d9e2; stroke-width: 1; stroke-dasharray: 1 4; }
  .message { fill: none; stroke-width: 1.7; opacity: 0.85; }
  .copy { stroke-dasharray: 5 3; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e8ebf2; }
    .paper { fill: #15181f; }
    .note, .step, .name { fill: #99a2b3; }
    .cell { fill: #20252f; stroke: #343b49; }
    .done { stroke: #e8ebf2; }
    .rule { stroke: #343b49; }
  }
</style>
)";

class Picture {
 public:
  Picture(const Schedule& schedule, const Playback& playback)
      : schedule_(schedule),
        playback_(playback),
        chunks_(static_cast<double>(std::max<std::size_t>(schedule.chunks.size(), 1))),
        cell_width_(chunks_ <= 4 ? 30 : 20),
        stripe_(schedule.world <= 5    ? 7
                : schedule.world <= 10 ? 5
                                       : 3),
        cell_height_(stripe_ * schedule.world + 4),
        gap_(chunks_ <= 1 ? 64 : 38),
        row_height_(cell_height_ + 46) {}

  std::string text() {
    const auto rows = static_cast<double>(playback_.states.size());
    const double columns_end = kLeft + schedule_.world * (chunks_ * cell_width_ + gap_) - gap_;
    const double width = std::max(columns_end + 28, 660.0);
    const double bottom = kTop + rows * row_height_;
    const double height = bottom + 44;
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
        "width=\"{0:.0f}\" "
        "height=\"{1:.0f}\" role=\"img\">\n<title>{2}</title>\n{3}{4}"
        "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n",
        width, height, title_of(schedule_), kStyle, markers());
    label("title", kMargin, 30, title_of(schedule_));
    label("note", kMargin, 50,
          "time runs down; a cell is one chunk of a rank's work buffer; arrows are messages");
    for (int rank = 0; rank < schedule_.world; ++rank) {
      const double middle = (left(rank, 0) + left(rank, static_cast<int>(chunks_))) / 2;
      label(
          "rank", middle, kTop - 20,
          "rank " + std::to_string(rank) +
              (schedule_.node_of.empty()
                   ? ""
                   : " (node " + std::to_string(schedule_.node_of[static_cast<std::size_t>(rank)]) +
                         ")"));
      for (int chunk = 0; chunk < static_cast<int>(schedule_.chunks.size()); ++chunk)
        label("name", left(rank, chunk) + cell_width_ / 2, kTop - 5, std::to_string(chunk));
    }
    for (std::size_t row = 0; row < playback_.states.size(); ++row) this->row(row, columns_end);
    for (const PlayedMessage& message : playback_.messages) arrow(message);
    legend(bottom + 14);
    return out_ + "</svg>\n";
  }

 private:
  static constexpr double kMargin = 22, kLeft = 92, kTop = 108;

  double left(int rank, int chunk) const {
    return kLeft + rank * (chunks_ * cell_width_ + gap_) + chunk * cell_width_;
  }
  double top(std::size_t row) const { return kTop + static_cast<double>(row) * row_height_; }

  void label(const char* style, double x, double y, const std::string& text) {
    out_ +=
        fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", style, x, y, text);
  }

  std::string markers() const {
    std::string out = "<defs>\n";
    for (int chunk = 0; chunk < static_cast<int>(schedule_.chunks.size()); ++chunk)
      out += fmt::format(
          "<marker id=\"head{}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" "
          "markerHeight=\"8\" markerUnits=\"userSpaceOnUse\" orient=\"auto\">"
          "<path d=\"M0 0.8 L8 4 L0 7.2 z\" fill=\"{}\"/></marker>\n",
          chunk, hue(chunk, schedule_.chunks.size()));
    return out + "</defs>\n";
  }

  void row(std::size_t row, double columns_end) {
    const bool last = row + 1 == playback_.states.size();
    const double y = top(row);
    label("step", kMargin, y + cell_height_ / 2 + 4, last ? "result" : fmt::format("step {}", row));
    if (!last)
      out_ += fmt::format(
          "<line class=\"rule\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n",
          kMargin, y + cell_height_ + 23, columns_end, y + cell_height_ + 23);
    for (int rank = 0; rank < schedule_.world; ++rank)
      for (int chunk = 0; chunk < static_cast<int>(schedule_.chunks.size()); ++chunk)
        cell(row, rank, chunk);
  }

  void cell(std::size_t row, int rank, int chunk) {
    const Value& value =
        playback_.states[row][static_cast<std::size_t>(rank)][static_cast<std::size_t>(chunk)];
    const double x = left(rank, chunk) + 1.5, y = top(row), width = cell_width_ - 3;
    out_ += fmt::format(
        "<rect class=\"cell\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
        "rx=\"3\"/>\n",
        x, y, width, cell_height_);
    for (const Origin& origin : value)
      if (origin != kUndefined)
        out_ += fmt::format(
            "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"1\" "
            "fill=\"{}\"/>\n",
            x + 2, y + 2.5 + origin.rank * stripe_, width - 4, stripe_ - 1.0,
            hue(origin.chunk, schedule_.chunks.size()));
    if (value == promised_value(schedule_, rank, chunk))
      out_ += fmt::format(
          "<rect class=\"done\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
          "rx=\"3\"/>\n",
          x, y, width, cell_height_);
  }

  void arrow(const PlayedMessage& message) {
    if (message.local) return;
    const double middle = cell_width_ * message.chunks / 2;
    const double x1 = left(message.sender, message.send_chunk) + middle;
    const double y1 = top(static_cast<std::size_t>(message.send_step)) + cell_height_ + 1;
    const double x2 = left(message.receiver, message.recv_chunk) + middle;
    const double y2 = top(static_cast<std::size_t>(message.recv_step) + 1) - 3;
    const double bend = std::min(34.0, (y2 - y1) * 0.6);
    const bool reduce = message.action == Action::reduce;
    out_ += fmt::format(
        "<path class=\"message{}\" stroke=\"{}\" marker-end=\"url(#head{})\" "
        "d=\"M{:.1f} {:.1f} C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}\">"
        "<title>rank {} sends {} to rank {}, which {} {}</title></path>\n",
        reduce ? "" : " copy", hue(message.send_chunk, schedule_.chunks.size()), message.send_chunk,
        x1, y1, x1, y1 + bend, x2, y2 - bend, x2, y2, message.sender,
        chunks_named(message.send_chunk, message.chunks), message.receiver,
        reduce ? "adds to" : "replaces", chunks_named(message.recv_chunk, message.chunks));
  }

  static std::string chunks_named(int first, int chunks) {
    return chunks == 1 ? fmt::format("chunk {}", first)
                       : fmt::format("chunks {} to {}", first, first + chunks - 1);
  }

  void legend(double y) {
    label("note", kMargin, y,
          "stripe r of a cell (from the top): rank r's contribution is in it \u00a0\u2022\u00a0 "
          "frame: the promised value");
    label("note", kMargin, y + 17,
          "solid arrow: added to the chunk \u00a0\u2022\u00a0 dashed arrow: replaces the chunk");
  }

  const Schedule& schedule_;
  const Playback& playback_;
  double chunks_, cell_width_, stripe_, cell_height_, gap_, row_height_;
  std::string out_;
};

}  // namespace

std::string render_svg(const Schedule& schedule, const Playback& playback) {
  require(schedule.world <= kMaxDrawnRanks,
          fmt::format("a picture of {} ranks is unreadable: draw at most {}", schedule.world,
                      kMaxDrawnRanks));
  return Picture(schedule, playback).text();
}

}  // namespace ringsmith::comm
