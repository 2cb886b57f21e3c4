// Lab 20, part 2: pipeline parallelism. Stage s of p has a p-th of the layers. A batch is cut into
// m microbatches, so that all stages have work:
//
//     GPipe, p = 3, m = 4                        1F1B
//     stage 0  0 1 2 3 . . . . 0 1 2 3           0 1 2 . . 0 3 1 . 2 . 3
//     stage 1  . 0 1 2 3 . . 0 1 2 3 .           . 0 1 . 0 2 1 3 2 . 3 .
//     stage 2  . . 0 1 2 3 0 1 2 3 . .           . . 0 0 1 1 2 2 3 3 . .
//
// Between its forward and its backward, a stage keeps the activations of a microbatch: it is in
// flight. Both schedules have 2 (p - 1) idle places in each row. In GPipe m microbatches are in
// flight; in 1F1B at most p - s.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

#include "labs/kit/link.hpp"
#include "labs/kit/todo.hpp"

namespace lab20 {

struct Task {
  bool forward = true;  // false: backward
  int micro = 0;        // of which microbatch
};
using Tasks = std::vector<Task>;

// Task 11. Returns the tasks of `stage` in order: all forwards, then all backwards.
inline Tasks gpipe(int stages, int micros, int stage) {
#ifdef SOLUTION
  (void)stages, (void)stage;
  Tasks tasks;
  for (int i = 0; i < micros; ++i) tasks.push_back({true, i});
  for (int i = 0; i < micros; ++i) tasks.push_back({false, i});
  return tasks;
#else
  (void)stages, (void)micros, (void)stage;
  kit::todo("task 11, gpipe");
#endif
}

// Task 12. As short as gpipe(), if every stage needs the same time, with at most
// min(micros, stages - stage) microbatches in flight on a stage.
inline Tasks one_f_one_b(int stages, int micros, int stage) {
#ifdef SOLUTION
  const int warm_up = std::min(stages - 1 - stage, micros);
  Tasks tasks;
  for (int i = 0; i < warm_up; ++i) tasks.push_back({true, i});
  for (int i = warm_up; i < micros; ++i) {
    tasks.push_back({true, i});
    tasks.push_back({false, i - warm_up});
  }
  for (int i = micros - warm_up; i < micros; ++i) tasks.push_back({false, i});
  return tasks;
#else
  (void)stages, (void)micros, (void)stage;
  kit::todo("task 12, one_f_one_b");
#endif
}

// Task 13. Returns the share of the time in which a stage is idle, in both schedules, if all stages
// need the same time and messages need none.
inline double bubble(int stages, int micros) {
#ifdef SOLUTION
  return double(stages - 1) / (double(micros) + double(stages) - 1);
#else
  (void)stages, (void)micros;
  kit::todo("task 13, bubble");
#endif
}

// Task 14. Returns the least number of microbatches for which bubble() is at most `share`, a
// number above 0; at least 1.
inline int micros_for(int stages, double share) {
#ifdef SOLUTION
  int low = 1, high = 1;
  while (bubble(stages, high) > share) low = high + 1, high *= 2;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (bubble(stages, middle) <= share)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
#else
  (void)stages, (void)share;
  kit::todo("task 14, micros_for");
#endif
}

// Task 15. No stage may have more than `most` microbatches in flight, because memory is short;
// most >= 1. The shorter the better: the judge's simulator compares yours with ours, for stages
// that need the same time and messages that need none: with backwards as long as forwards, and
// with backwards twice as long.
inline Tasks within(int stages, int micros, int stage, int most) {
#ifdef SOLUTION
  const int warm_up = std::min({stages - 1 - stage, most - 1, micros});
  Tasks tasks;
  for (int i = 0; i < warm_up; ++i) tasks.push_back({true, i});
  for (int i = warm_up; i < micros; ++i) {
    tasks.push_back({true, i});
    tasks.push_back({false, i - warm_up});
  }
  for (int i = micros - warm_up; i < micros; ++i) tasks.push_back({false, i});
  return tasks;
#else
  (void)stages, (void)micros, (void)stage, (void)most;
  kit::todo("task 15, within");
#endif
}

// Task 16. Runs the tasks of this rank, which is a stage: rank s of link.world() is stage s. They
// come from GPipe, with the backwards ascending or descending on all stages, or from 1F1B, with or
// without a limit on the microbatches in flight.
//     model.forward(micro, in, out)    in: activations from the stage before (empty on stage 0);
//                                      out: for the stage behind (empty on the last)
//     model.backward(micro, in, out)   in: gradient from the stage behind (empty on the last);
//                                      out: for the stage before (empty on stage 0)
// in: std::span<const float>, out: std::span<float>, both of model.width() elements if not empty.
// Each `out` is one message. The network buffers nothing, so two stages that both send to each
// other before they receive wait forever. A send and the receive that follows it may be one
// exchange().
template <class Model>
void run_stage(kit::Link& link, const Tasks& tasks, Model& model) {
#ifdef SOLUTION
  const int stage = link.rank(), last = link.world() - 1;
  std::vector<float> in, out;
  // Return the rank that sends the task's input, and the rank that gets its output; -1 for none.
  const auto from = [&](const Task& t) {
    return t.forward ? stage - 1 : stage == last ? -1 : stage + 1;
  };
  const auto to = [&](const Task& t) {
    return t.forward ? (stage == last ? -1 : stage + 1) : stage - 1;
  };
  const auto width = [&](int peer) { return peer < 0 ? 0 : std::size_t(model.width()); };
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    if (t == 0) {
      in.resize(width(from(tasks[t])));
      if (from(tasks[t]) >= 0) link.recv(from(tasks[t]), std::span<float>(in));
    }
    out.assign(width(to(tasks[t])), 0.0F);
    if (tasks[t].forward)
      model.forward(tasks[t].micro, std::span<const float>(in), std::span<float>(out));
    else
      model.backward(tasks[t].micro, std::span<const float>(in), std::span<float>(out));
    const int receiver = to(tasks[t]), sender = t + 1 < tasks.size() ? from(tasks[t + 1]) : -1;
    in.resize(width(sender));
    if (receiver >= 0 && sender >= 0)
      link.exchange(receiver, std::span<const float>(out), sender, std::span<float>(in));
    else if (receiver >= 0)
      link.send(receiver, std::span<const float>(out));
    else if (sender >= 0)
      link.recv(sender, std::span<float>(in));
  }
#else
  (void)link, (void)tasks, (void)model;
  kit::todo("task 16, run_stage");
#endif
}

}  // namespace lab20
