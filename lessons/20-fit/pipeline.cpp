// pipeline: GPipe and 1F1B as data: a list of tasks for each stage. A simulator plays the lists; a
// task starts when its stage is free and its input is there. Times are simulated: a backward takes
// as long as a forward, or twice as long, and messages take none.
//
//     pipeline          both schedules, drawn, of 3 stages and 4 microbatches
//     pipeline bubble   the idle share, simulated and by (p - 1) / (m + p - 1)
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace {

struct Task {
  bool forward;
  int micro;
};
using Tasks = std::vector<Task>;

// warm_up forwards, then pairs, then the rest of the backwards.
Tasks schedule(int micros, int warm_up) {
  Tasks tasks;
  for (int i = 0; i < warm_up; ++i) tasks.push_back({true, i});
  for (int i = warm_up; i < micros; ++i) {
    tasks.push_back({true, i});
    tasks.push_back({false, i - warm_up});
  }
  for (int i = micros - warm_up; i < micros; ++i) tasks.push_back({false, i});
  return tasks;
}
Tasks gpipe(int micros) { return schedule(micros, micros); }
Tasks one_f_one_b(int stages, int micros, int stage) {
  return schedule(micros, std::min(stages - 1 - stage, micros));
}

struct Played {
  std::vector<std::vector<int>> begins;  // of each stage's tasks
  int end = 0;
};

Played play(const std::vector<Tasks>& stages, int backward) {
  const std::size_t last = stages.size() - 1;
  Played played;
  played.begins.resize(stages.size());
  std::map<std::tuple<std::size_t, bool, int>, int> done;
  std::vector<int> free(stages.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t s = 0; s < stages.size(); ++s)
      while (played.begins[s].size() < stages[s].size()) {
        const Task task = stages[s][played.begins[s].size()];
        int ready = 0;  // when the input is there; -1: not yet
        const bool first = task.forward ? s == 0 : s == last;
        if (!first) {
          const auto input = done.find({task.forward ? s - 1 : s + 1, task.forward, task.micro});
          ready = input == done.end() ? -1 : input->second;
        }
        if (ready < 0) break;
        const int begin = std::max(free[s], ready);
        played.begins[s].push_back(begin);
        free[s] = done[{s, task.forward, task.micro}] = begin + (task.forward ? 1 : backward);
        played.end = std::max(played.end, free[s]);
        moved = true;
      }
  }
  return played;
}

int in_flight(const Tasks& tasks) {
  int now = 0, most = 0;
  for (const Task& t : tasks) most = std::max(most, now += t.forward ? 1 : -1);
  return most;
}

std::vector<Tasks> all(bool gpipes, int stages, int micros) {
  std::vector<Tasks> tasks;
  for (int s = 0; s < stages; ++s)
    tasks.push_back(gpipes ? gpipe(micros) : one_f_one_b(stages, micros, s));
  return tasks;
}

void draw(const char* name, const std::vector<Tasks>& stages) {
  const Played played = play(stages, 1);
  std::printf("%s: %d steps\n", name, played.end);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    std::vector<std::string> row(static_cast<std::size_t>(played.end), " .");
    for (std::size_t t = 0; t < stages[s].size(); ++t)
      row[static_cast<std::size_t>(played.begins[s][t])] =
          (stages[s][t].forward ? "F" : "B") + std::to_string(stages[s][t].micro);
    std::printf("  stage %zu ", s);
    for (const std::string& step : row) std::printf(" %s", step.c_str());
    std::printf("   in flight %d\n", in_flight(stages[s]));
  }
}

void bubbles() {
  std::printf("stages  microbatches   GPipe    1F1B   formula   in flight: GPipe  1F1B\n");
  for (const auto& [p, m] :
       std::vector<std::pair<int, int>>{{4, 1}, {4, 4}, {4, 16}, {8, 8}, {8, 32}, {8, 128}}) {
    double share[2];
    int flight[2];
    for (const bool gpipes : {true, false}) {
      const std::vector<Tasks> stages = all(gpipes, p, m);
      const int end = play(stages, 2).end;
      share[gpipes ? 0 : 1] = 1 - 3.0 * m / end;
      flight[gpipes ? 0 : 1] = in_flight(stages[0]);
    }
    std::printf("%6d %14d %6.1f %% %5.1f %% %7.1f %% %18d %5d\n", p, m, 100 * share[0],
                100 * share[1], 100.0 * (p - 1) / (m + p - 1), flight[0], flight[1]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "bubble") == 0) {
    bubbles();
    return 0;
  }
  draw("GPipe", all(true, 3, 4));
  draw("1F1B", all(false, 3, 4));
}
