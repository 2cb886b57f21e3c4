#include "labs/kit/checker/prove.hpp"

#include "runtime/analysis/checker.hpp"

namespace kit {

std::string fault_of(const Schedule& given) {
  using namespace ringsmith::comm;
  ringsmith::comm::Schedule schedule;
  schedule.world = given.world;
  schedule.count = 3 * static_cast<std::size_t>(given.chunks) + 1;
  schedule.chunks = split_evenly(schedule.count, given.chunks);
  for (const auto& steps : given.steps) {
    schedule.steps.emplace_back();
    for (const ScheduleStep& s : steps)
      schedule.steps.back().push_back(
          {s.to, s.send_chunk, s.from, s.recv_chunk, s.adds ? Action::reduce : Action::copy});
  }
  const std::vector<Violation> findings = check(schedule);
  return findings.empty() ? "" : findings.front().describe();
}

std::string text_of(const Schedule& schedule) {
  std::string text = "all_reduce world " + std::to_string(schedule.world) + " chunks " +
                     std::to_string(schedule.chunks) + "\n";
  for (std::size_t rank = 0; rank < schedule.steps.size(); ++rank)
    for (const ScheduleStep& s : schedule.steps[rank]) {
      for (const int n : {int(rank), s.to, s.send_chunk, s.from, s.recv_chunk})
        text += std::to_string(n) + " ";
      text += s.adds ? "reduce\n" : "copy\n";
    }
  return text;
}

}  // namespace kit
