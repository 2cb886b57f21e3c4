// The picture of a schedule: time runs down, ranks stand side by side.
//
//     step 0   [▤][▤][▤]      [▤][▤][▤]      a cell is a chunk of a rank's buffer; stripe r of it
//     is
//                  \______________             filled when rank r's contribution is in
//     step 1   [▤][▤][▤]      [▤][▤][▤]      an arrow is a message, from the chunk that was sent to
//                                              the chunk it arrives in, one row later
#include <cmath>
#include <fmt/format.h>

#include "runtime/base/error.hpp"
#include "runtime/comm/analysis/player.hpp"

namespace ringsmith::comm {

namespace {

// Colours by chunk, of one lightness, so that they stand on white and on black.
std::string hue(int chunk, std::size_t chunks) {
  const double turn = chunks <= 1 ? 0.0 : static_cast<double>(chunk) / static_cast<double>(chunks);
  return fmt::format("hsl({:.0f} 62% 52%)", 360 * std::fmod(turn + 0.56, 1.0));
}

// Plain rules first, for renderers that know neither variables nor media queries; dark paper after.
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
    for (const Message& message : playback_.messages) arrow(message);
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

  void arrow(const Message& message) {
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
          "frame: as the collective promises");
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
