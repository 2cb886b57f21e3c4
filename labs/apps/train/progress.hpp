// The line that shows the progress of training.
//
//   [=====>       ] 480/1000  loss 2.3104  21.4k tokens/s  comm 3.1 ms  exposed 0.4 ms  0:52 left
//
// On a terminal, one line is redrawn, without the least important fields if it is too long. A file
// or a pipe gets a plain line every few seconds. Under mpirun a rank's own streams say nothing
// about the reader (standard output is always a pseudo-terminal, standard error always a pipe), so
// the launcher's standard error is examined.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace ringsmith::apps {

struct ProgressState {
  std::int64_t step = 0;  // finished steps
  std::int64_t steps = 0;
  double loss = 0;
  double rate = 0;  // units per second
  const char* unit = "tokens";
  double comm_ms = 0;  // per step
  double exposed_ms = 0;
  double seconds_left = 0;
  std::optional<double> held_out_loss = {};  // from the last evaluation
};

// "1:02:03", "0:07"; "?" for a value that is not a valid duration.
[[nodiscard]] std::string format_duration(double seconds);
// "21.4k", "3.05M", "812"
[[nodiscard]] std::string format_count(double value);
// Returns at most `width` characters, without a newline.
[[nodiscard]] std::string render_progress(const ProgressState& state, int width);

class Progress {
 public:
  enum class Style : std::uint8_t { bar, lines, off };
  // Parses "bar", "lines" or "off"; for any other name, returns detect().
  [[nodiscard]] static Style parse(const std::string& name);
  [[nodiscard]] static Style detect();

  explicit Progress(Style style, std::FILE* out = stderr);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Draws a bar at most ten times a second, or a line at most every five seconds. Always draws
  // step 1 and the last step. Style::off draws nothing.
  void update(const ProgressState& state);
  // Erases the bar, so that other output can be written.
  void clear();

 private:
  Style style_;
  std::FILE* out_;
  std::int64_t last_ns_ = 0;
  bool drawn_ = false;
};

}  // namespace ringsmith::apps
