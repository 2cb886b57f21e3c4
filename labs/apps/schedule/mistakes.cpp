#include "labs/apps/schedule/mistakes.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "runtime/base/error.hpp"

namespace ringsmith::apps {

using comm::Action;
using comm::Schedule;
using comm::Step;

namespace {

int next_chunk(const Schedule& schedule, int chunk) {
  return comm::wrap(chunk + 1, static_cast<int>(schedule.chunks.size()));
}

// Returns the first step, in rank order, for which `fits` is true, or null if there is none.
template <class Fits>
Step* first_step(Schedule& schedule, Fits fits) {
  for (auto& steps : schedule.steps)
    for (Step& step : steps)
      if (fits(step)) return &step;
  return nullptr;
}

void skip(Schedule& schedule) {  // in one rank only; its neighbours rely on the step
  for (auto& steps : schedule.steps)
    if (!steps.empty()) {
      steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2));
      return;
    }
}

void one_step_short(Schedule& schedule) {
  for (auto& steps : schedule.steps)
    if (!steps.empty()) steps.pop_back();
}

void wrong_chunk(Schedule& schedule) {
  Step* const step = first_step(schedule, [](const Step& s) { return s.sends(); });
  if (step != nullptr) step->send_chunk = next_chunk(schedule, step->send_chunk);
}

void adds_to_the_end(Schedule& schedule) {
  for (auto& steps : schedule.steps)
    for (Step& step : steps) step.action = Action::reduce;
}

void owner_off_by_one(Schedule& schedule) {  // the copy phase starts with the wrong chunk
  for (auto& steps : schedule.steps)
    for (std::size_t s = steps.size() / 2; s < steps.size(); ++s) {
      steps[s].send_chunk = next_chunk(schedule, steps[s].send_chunk);
      steps[s].recv_chunk = next_chunk(schedule, steps[s].recv_chunk);
    }
}

void receive_first(Schedule& schedule) {
  for (auto& steps : schedule.steps) {
    std::vector<Step> parted;
    for (const Step& step : steps) {
      Step receive = step, send = step;
      receive.send_peer = send.recv_peer = comm::kNobody;
      if (step.receives()) parted.push_back(receive);
      if (step.sends()) parted.push_back(send);
    }
    steps = std::move(parted);
  }
}

void remainder_dropped(Schedule& schedule) {
  const std::size_t even = schedule.count / schedule.chunks.size();
  for (std::size_t c = 0; c < schedule.chunks.size(); ++c) schedule.chunks[c] = {c * even, even};
}

struct Planted : Mistake {
  void (*plant)(Schedule&);
};
constexpr Planted kPlanted[] = {
    {{"skip", "one rank leaves out its middle step"}, skip},
    {{"wrong_chunk", "one rank sends the chunk after the right one"}, wrong_chunk},
    {{"adds_to_the_end", "received data is added where it should replace"}, adds_to_the_end},
    {{"owner_off_by_one", "the second half begins with the wrong chunk"}, owner_off_by_one},
    {{"receive_first", "every rank waits for its message before it sends"}, receive_first},
    {{"one_step_short", "all ranks stop one step too early"}, one_step_short},
    {{"remainder_dropped", "the chunks are count / chunks elements, rounded down"},
     remainder_dropped},
};

}  // namespace

const std::vector<Mistake>& mistakes() {
  static const std::vector<Mistake> all(std::begin(kPlanted), std::end(kPlanted));
  return all;
}

Schedule with_mistake(const Schedule& schedule, std::string_view name) {
  const auto* const found = std::ranges::find(kPlanted, name, &Planted::name);
  if (found == std::end(kPlanted)) {
    std::string names;
    for (const Planted& planted : kPlanted)
      names += (names.empty() ? "" : ", ") + std::string(planted.name);
    throw UsageError(fmt::format("--mistake {}: choose one of {}", name, names));
  }
  require(std::ranges::any_of(schedule.steps, [](const auto& steps) { return !steps.empty(); }),
          fmt::format("--mistake {}: a single rank has no steps in which to make it", name));
  Schedule wrong = schedule;
  found->plant(wrong);
  return wrong;
}

}  // namespace ringsmith::apps
