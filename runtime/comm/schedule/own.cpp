#include "runtime/comm/schedule/own.hpp"

#include <map>
#include <sstream>

#include "runtime/base/error.hpp"

namespace ringsmith::comm {

namespace {

std::map<int, Schedule>& own() {  // by world
  static std::map<int, Schedule> schedules;
  return schedules;
}

}  // namespace

Schedule parse_schedule(std::string_view text, std::size_t count) {
  std::istringstream lines{std::string(text)};
  std::string line, rest, word;
  int number = 0;
  const auto wrong = [&](const char* what) {
    throw UsageError("schedule, line " + std::to_string(number) + " '" + line + "': " + what);
  };
  const auto next = [&](std::istringstream& words) {
    ++number;
    if (!std::getline(lines, line)) return false;
    words = std::istringstream(line);
    return true;
  };
  std::istringstream words;
  int world = 0, chunks = 0;
  if (!next(words) || !(words >> word) || word != "all_reduce" || !(words >> word) ||
      word != "world" || !(words >> world) || !(words >> word) || word != "chunks" ||
      !(words >> chunks) || words >> rest || world < 1 || chunks < 1 || world > 16384 ||
      chunks > 1 << 20)
    wrong("the first line must be 'all_reduce world N chunks N'");
  Schedule schedule = empty_schedule(Algorithm::own, Collective::all_reduce, world, count, chunks);
  while (next(words)) {
    Step step;
    int rank = -1;
    if (!(words >> rank >> step.send_peer >> step.send_chunk >> step.recv_peer >> step.recv_chunk >>
          word) ||
        words >> rest || (word != "reduce" && word != "copy"))
      wrong("a step must be 'RANK TO CHUNK FROM CHUNK reduce' or '... copy'");
    if (rank < 0 || rank >= world) wrong("there is no such rank");
    step.action = word == "reduce" ? Action::reduce : Action::copy;
    schedule.add(rank, step);
  }
  return schedule;
}

void use_as_ring(const Schedule& schedule) { own()[schedule.world] = schedule; }

const Schedule* own_ring(int world) {
  const auto found = own().find(world);
  return found == own().end() ? nullptr : &found->second;
}

}  // namespace ringsmith::comm
