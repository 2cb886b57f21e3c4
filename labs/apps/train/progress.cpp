#include "labs/apps/train/progress.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <vector>

#include "labs/apps/common/text.hpp"
#include "runtime/base/process.hpp"
#include "runtime/base/tracer.hpp"

namespace ringsmith::apps {

namespace {

constexpr std::int64_t kBarPeriodNs = 100'000'000;
constexpr std::int64_t kLinePeriodNs = 5'000'000'000;
constexpr int kDefaultWidth = 80;
constexpr int kLineWidth = 75;  // with ringrun's prefix at most 80

// Opens the terminal behind standard error or, under mpirun, behind mpirun's standard error.
Descriptor open_terminal() {
  if (isatty(STDERR_FILENO) != 0) return Descriptor(dup(STDERR_FILENO));
  if (std::getenv("OMPI_COMM_WORLD_RANK") == nullptr) return {};
  const std::string path = "/proc/" + std::to_string(getppid()) + "/fd/2";
  Descriptor file(open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC));
  return isatty(file.get()) != 0 ? std::move(file) : Descriptor();
}

}  // namespace

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e8) return "?";
  const auto s = static_cast<std::int64_t>(std::llround(seconds));
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
                   : fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string format_count(double value) {
  if (!std::isfinite(value)) return "?";
  if (std::abs(value) < 999.5) return fmt::format("{:.0f}", value);
  if (std::abs(value) < 999.5e3) return fmt::format("{:.3g}k", value / 1e3);
  return fmt::format("{:.3g}M", value / 1e6);
}

std::string render_progress(const ProgressState& s, int width) {
  const std::string count = fmt::format("{}/{}", s.step, s.steps);
  struct Field {
    std::string text;
    int importance;  // the least important field is dropped first
  };
  std::vector<Field> fields = {{fmt::format("loss {:.4f}", s.loss), 5},
                               {fmt::format("{} {}/s", format_count(s.rate), s.unit), 3},
                               {fmt::format("comm {:.1f} ms", s.comm_ms), 1},
                               {fmt::format("exposed {:.1f} ms", s.exposed_ms), 2},
                               {format_duration(s.seconds_left) + " left", 4}};
  if (s.held_out_loss)
    fields.insert(fields.begin() + 1, {fmt::format("held out {:.4f}", *s.held_out_loss), 2});
  const auto used = [&] {
    std::size_t n = count.size();
    for (const Field& f : fields) n += 2 + f.text.size();
    return static_cast<int>(n);
  };
  while (!fields.empty() && used() > width)
    fields.erase(std::ranges::min_element(fields, {}, &Field::importance));

  std::string out = count;
  for (const Field& f : fields) out += "  " + f.text;
  constexpr int kLeastBar = 8, kMostBar = 30;
  const int bar = std::min(kMostBar, width - static_cast<int>(out.size()) - 3);
  if (bar >= kLeastBar) {
    const double share =
        s.steps > 0 ? static_cast<double>(s.step) / static_cast<double>(s.steps) : 0;
    const auto full = static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * bar);
    std::string inside(full, '=');
    if (full < static_cast<std::size_t>(bar)) inside += '>';
    inside.resize(static_cast<std::size_t>(bar), ' ');
    out = "[" + inside + "] " + out;
  }
  return out.substr(0, static_cast<std::size_t>(std::max(width, 0)));
}

Progress::Style Progress::parse(const std::string& name) {
  if (name == "off") return Style::off;
  if (name == "bar") return Style::bar;
  if (name == "lines") return Style::lines;
  return detect();
}

Progress::Style Progress::detect() { return open_terminal().valid() ? Style::bar : Style::lines; }

Progress::Progress(Style style, std::FILE* out) : style_(style), out_(out) {}

Progress::~Progress() { clear(); }

void Progress::update(const ProgressState& state) {
  if (style_ == Style::off) return;
  const std::int64_t now = trace::now_ns();
  const bool due = now - last_ns_ >= (style_ == Style::bar ? kBarPeriodNs : kLinePeriodNs);
  if (!due && state.step != 1 && state.step != state.steps) return;
  last_ns_ = now;
  if (style_ == Style::bar) {
    // Leaves one column free, because a full line would wrap. \033[K erases the rest of a longer
    // line.
    const auto width = static_cast<int>(terminal_width(kDefaultWidth, open_terminal().get()));
    fmt::print(out_, "\r{}\033[K", render_progress(state, width - 1));
    drawn_ = true;
  } else {
    fmt::print(out_, "{}\n", render_progress(state, kLineWidth));
  }
  std::fflush(out_);
}

void Progress::clear() {
  if (!drawn_) return;
  fmt::print(out_, "\r\033[K");
  std::fflush(out_);
  drawn_ = false;
}

}  // namespace ringsmith::apps
