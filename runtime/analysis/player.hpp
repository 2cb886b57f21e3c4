// Displays a schedule: the messages of each step, and the content of every chunk after it.
//
//     step 0                                contributions after the step
//     rank   sends        receives          chunk 0  1      2      3
//     0      3 -> 1       2 <- 3 +          [0...]   [0...] [0.  3] ...
//
// play() runs the steps without data and keeps every state. The renderers draw the states as text
// for a terminal, or as a self-contained SVG that is readable on light and dark backgrounds.
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
  // includes only its own earlier steps, because ranks need not be at the same step at the same
  // time.
  std::vector<std::vector<std::vector<Value>>> states;
  std::vector<PlayedMessage> messages;  // in an order in which they could be received
};

// Runs the schedule and records the states. Throws UsageError if it does not finish (the checker
// reports the reason).
[[nodiscard]] Playback play(const Schedule& schedule);

struct TextStyle {
  std::size_t width = 80;  // columns of the terminal
  bool colour = false;     // ANSI: complete chunks green, changed ones bold
};

// Draws the states as text. To fit the width, the state of a chunk is shown as the set of its
// ranks, as their number, or not at all.
[[nodiscard]] std::string render_text(const Schedule& schedule, const Playback& playback,
                                      TextStyle style);

// Draws the states as SVG. Throws UsageError if there are more than kMaxDrawnRanks ranks.
constexpr int kMaxDrawnRanks = 16;
[[nodiscard]] std::string render_svg(const Schedule& schedule, const Playback& playback);

// Returns e.g. "ring all_reduce, 4 ranks, 16 elements in 4 chunks".
[[nodiscard]] std::string title_of(const Schedule& schedule);

}  // namespace ringsmith::comm
