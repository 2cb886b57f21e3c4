// Unusual and correct: schedules that a small simulation finds, GPipe with backwards in reverse,
// and a stage that exchanges only with the rank that it also sends to.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "labs/kit/link.hpp"

namespace lab20 {

struct Task {
  bool forward = true;
  int micro = 0;
};
using Tasks = std::vector<Task>;

// Plays all stages in steps: in each, a stage does a backward if it can, else a forward if fewer
// than its limit are in flight.
inline Tasks greedy(int stages, int micros, int stage, int most) {
  struct Stage {
    int forwards = 0, backwards = 0;
    Tasks tasks;
  };
  std::vector<Stage> all(static_cast<std::size_t>(stages));
  while (all[0].backwards < micros) {
    const std::vector<Stage> before = all;
    for (int s = 0; s < stages; ++s) {
      Stage& self = all[std::size_t(s)];
      const Stage& now = before[std::size_t(s)];
      const int arrived = s == 0 ? micros : before[std::size_t(s) - 1].forwards;
      const int returned = s + 1 == stages ? now.forwards : before[std::size_t(s) + 1].backwards;
      if (now.backwards < std::min(returned, now.forwards))
        self.tasks.push_back({false, self.backwards++});
      else if (now.forwards < arrived && now.forwards - now.backwards < std::min(most, stages - s))
        self.tasks.push_back({true, self.forwards++});
    }
  }
  return all[std::size_t(stage)].tasks;
}

inline Tasks gpipe(int, int micros, int) {
  Tasks tasks;
  for (int i = 0; i < micros; ++i) tasks.push_back({true, i});
  for (int i = micros; i-- > 0;) tasks.push_back({false, i});
  return tasks;
}
inline Tasks one_f_one_b(int stages, int micros, int stage) {
  return greedy(stages, micros, stage, stages);
}
inline double bubble(int stages, int micros) {
  const double idle = double(stages) - 1, busy = micros;
  return idle / (idle + busy);
}
inline int micros_for(int stages, double share) {
  if (share >= 1 || stages == 1) return 1;
  int m = std::max(1, int((double(stages) - 1) * (1 - share) / share) - 2);
  while (bubble(stages, m) > share) ++m;
  while (m > 1 && bubble(stages, m - 1) <= share) --m;
  return m;
}
inline Tasks within(int stages, int micros, int stage, int most) {
  return greedy(stages, micros, stage, most);
}

template <class Model>
void run_stage(kit::Link& link, const Tasks& tasks, Model& model) {
  const int before = link.rank() - 1,
            behind = link.rank() + 1 < link.world() ? link.rank() + 1 : -1;
  const std::size_t width = std::size_t(model.width());
  std::vector<float> in(width), out(width);
  bool here = false;  // is the next input in `in`?
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    const Task task = tasks[t];
    const int source = task.forward ? before : behind, target = task.forward ? behind : before;
    if (!here && source >= 0) link.recv(source, std::span<float>(in));
    here = false;
    const std::span<const float> given = std::span<const float>(in).first(source < 0 ? 0 : width);
    const std::span<float> made = std::span<float>(out).first(target < 0 ? 0 : width);
    if (task.forward)
      model.forward(task.micro, given, made);
    else
      model.backward(task.micro, given, made);
    if (target < 0) continue;
    const bool turns = t + 1 < tasks.size() && tasks[t + 1].forward != task.forward;
    if (turns) link.exchange(target, std::span<const float>(out), target, std::span<float>(in));
    if (!turns) link.send(target, std::span<const float>(out));
    here = turns;
  }
}

}  // namespace lab20
