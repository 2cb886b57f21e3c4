// A student's ring of lab 06 as a shared object that reports its steps. Programs read the steps
// with labs/apps/schedule/own_schedule.hpp, and prove them before they run anything. Only the steps
// of task 2 are used; the runtime's executors move the data.
#include <exception>
#include <string>

// clang-format off
#include LAB06_RING
// clang-format on

namespace {

std::string steps_of(int world) {
  std::string text =
      "all_reduce world " + std::to_string(world) + " chunks " + std::to_string(world) + "\n";
  const auto add = [&text](int rank, const lab06::Step& s, const char* action) {
    for (const int n : {rank, s.to, s.send_chunk, s.from, s.recv_chunk})
      text += std::to_string(n) + " ";
    text += action;
  };
  for (int rank = 0; rank < world; ++rank) {
    for (int step = 0; step < world - 1; ++step)
      add(rank, lab06::reduce_scatter_step(world, rank, step), "reduce\n");
    for (int step = 0; step < world - 1; ++step)
      add(rank, lab06::all_gather_step(world, rank, step), "copy\n");
  }
  return text;
}

}  // namespace

extern "C" const char* ringsmith_own_ring(int world) {
  static std::string text;
  try {
    text = steps_of(world);
  } catch (const kit::NotAttempted& missing) {
    text = "!not attempted: " + missing.task;
  } catch (const std::exception& error) {
    text = std::string("!it throws: ") + error.what();
  }
  return text.c_str();
}
