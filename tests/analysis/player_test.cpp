#include "runtime/analysis/player.hpp"

#include <algorithm>
#include <sstream>

#include "runtime/base/error.hpp"
#include "runtime/comm/schedule/select.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::comm;

namespace {

std::size_t occurrences(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

std::size_t widest_line(const std::string& text) {
  std::istringstream lines(text);
  std::size_t widest = 0;
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
  return widest;
}

}  // namespace

TEST_CASE("the table shows each rank's peers, chunks and contributions", "[player]") {
  const Schedule ring = make_schedule(Collective::all_reduce, Algorithm::ring, 3, 9);
  const std::string text = render_text(ring, play(ring), {80, false});
  CHECK_THAT(text, ContainsSubstring("ring all_reduce, 3 ranks, 9 elements in 3 chunks"));
  CHECK_THAT(text, ContainsSubstring("step 0\n"
                                     "rank  sends     receives      c0  c1  c2\n"
                                     "0     c2 -> 1   c1 += 2       0.. 0.2 0..\n"
                                     "1     c0 -> 2   c2 += 0       .1. .1. 01.\n"
                                     "2     c1 -> 0   c0 += 1       .12 ..2 ..2\n"));
  CHECK_THAT(text, ContainsSubstring("1     c0 -> 2   c2 <- 0       012 012 012\n"));
  CHECK(text.find("step 4") == std::string::npos);
}

TEST_CASE("the table shows messages of several chunks, and who shares a node", "[player]") {
  const Schedule schedule =
      make_schedule(Collective::all_reduce, Algorithm::hierarchical, 4, 8, 4, 0, {0, 0, 1, 1});
  const std::string text = render_text(schedule, play(schedule), {80, false});
  CHECK_THAT(text, ContainsSubstring("nodes: 0 1 | 2 3\n"));
  CHECK_THAT(text, ContainsSubstring("0     c2-3 -> 1   c0-1 += 1       01.. 01.. 0... 0...\n"));
  const std::string svg = render_svg(schedule, play(schedule));
  CHECK_THAT(svg, ContainsSubstring("rank 3 (node 1)"));
  CHECK_THAT(
      svg, ContainsSubstring("rank 0 sends chunks 2 to 3 to rank 1, which adds to chunks 2 to 3"));
}

TEST_CASE("the table keeps to the width of the terminal", "[player]") {
  for (const int world : {1, 2, 4, 8, 16, 36})
    for (const std::size_t width : {60, 80, 100, 160}) {
      const Schedule ring = make_schedule(Collective::all_reduce, Algorithm::ring, world,
                                          static_cast<std::size_t>(world) * 4);
      CHECK(widest_line(render_text(ring, play(ring), {width, false})) <=
            std::max<std::size_t>(width, 70));
    }
}

TEST_CASE("the picture has an arrow for every message and closes what it opens", "[player]") {
  for (const Collective collective : all_collectives())
    for (const Algorithm algorithm : algorithms_of(collective)) {
      const Schedule schedule = make_schedule(collective, algorithm, 4, 16);
      const Playback playback = play(schedule);
      const std::string svg = render_svg(schedule, playback);
      std::size_t sends = 0;
      for (const auto& steps : schedule.steps)
        for (const Step& step : steps) sends += step.sends() ? 1 : 0;
      CHECK(occurrences(svg, "class=\"message") == sends);
      for (const char* tag : {"svg", "text", "path", "title", "marker", "defs", "style"})
        CHECK(occurrences(svg, std::string("<") + tag + ">") +
                  occurrences(svg, std::string("<") + tag + " ") -
                  (std::string(tag) == "path" ? occurrences(svg, "/></marker>") : 0) ==
              occurrences(svg, std::string("</") + tag + ">"));
      // At the end every promised chunk has a frame.
      std::size_t promised = 0;
      for (const auto& state : playback.states)
        for (int rank = 0; rank < 4; ++rank)
          for (int chunk = 0; chunk < static_cast<int>(schedule.chunks.size()); ++chunk)
            promised += state[static_cast<std::size_t>(rank)][static_cast<std::size_t>(chunk)] ==
                        promised_value(schedule, rank, chunk);
      CHECK(occurrences(svg, "class=\"done\"") == promised);
    }
}

TEST_CASE("too many ranks for a picture is said, not drawn", "[player]") {
  const Schedule ring = make_schedule(Collective::all_reduce, Algorithm::ring, 17, 17);
  CHECK_THROWS_AS(render_svg(ring, play(ring)), ringsmith::UsageError);
}
