// Displays a schedule: the messages of each step, and the content of every chunk after it.
//
//     step 0
//     rank  sends     receives      c0   c1   c2   c3     whose contributions each chunk holds
//     0     c3 -> 1   c2 += 3       0... 0... 0..3 0...   after the step
//
// play() runs the steps without data and keeps every state. The renderers draw the states as text
// for a terminal, or as a self-contained SVG for light and dark backgrounds.
#pragma once

#include "runtime/analysis/interpreter.hpp"

namespace ringsmith::comm {

struct PlayedMessage {
  int sender = 0, send_step = 0, send_chunk = 0;
  int receiver = 0, recv_step = 0, recv_chunk = 0;
  Action action = Action::copy;
  bool local = false;  // from the rank's own input
  int chunks = 1;
};

struct Playback {
  // [step][rank][chunk]: the state before the step; the last entry is the result. A rank's state
  // includes only its own earlier steps.
  std::vector<std::vector<std::vector<Value>>> states;
  std::vector<PlayedMessage> messages;  // in a possible order of reception
};

// Throws UsageError if the schedule does not finish.
[[nodiscard]] Playback play(const Schedule& schedule);

struct TextStyle {
  std::size_t width = 80;  // columns of the terminal
  bool colour = false;     // ANSI: complete chunks green, changed ones bold
};

// Draws the states as text. To fit the width, the state of a chunk is shown as the set of ranks
// that contributed to it, as their number, or not at all.
[[nodiscard]] std::string render_text(const Schedule& schedule, const Playback& playback,
                                      TextStyle style);

// Throws UsageError if there are more than kMaxDrawnRanks ranks.
constexpr int kMaxDrawnRanks = 16;
[[nodiscard]] std::string render_svg(const Schedule& schedule, const Playback& playback);

// E.g. "ring all_reduce, 4 ranks, 16 elements in 4 chunks".
[[nodiscard]] std::string title_of(const Schedule& schedule);

}  // namespace ringsmith::comm
