// book_race: threads of one block leave a number in shared memory and read their neighbour's,
// with or without a barrier in between, on the emulator. Prints all actions in their order.
//
//     book_race --threads 4 --seed 3            without the barrier
//     book_race --threads 4 --seed 3 --barrier
//
// A live figure of the book. The emulator's fibers are switched by machine code that a browser
// cannot run, so the page plays what this program recorded for a number of seeds.
#include "lessons/book/figures/race.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels/vgpu/settings.hpp"
#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"

using namespace ringsmith;
using book::Moment;
using book::What;

namespace {

constexpr const char* kWhats[] = {"writes", "waits", "passes", "reads"};
const char* name_of(What what) { return kWhats[static_cast<int>(what)]; }

bool is_stale(const Moment& m) {
  return m.what == What::reads && m.value != book::number_of(m.place);
}

std::string as_line(const Moment& m) {
  const std::string who = fmt::format("thread {} {}", m.thread, name_of(m.what));
  switch (m.what) {
    case What::writes:
      return fmt::format("{} {} into place {}\n", who, m.value, m.place);
    case What::waits:
      return who + " at the barrier\n";
    case What::passes:
      return who + " the barrier\n";
    case What::reads:
      break;
  }
  return fmt::format("{} place {}: {}{}\n", who, m.place, m.value,
                     is_stale(m) ? ", which its neighbour has not written yet" : "");
}

int run(int argc, char** argv) {
  int threads = 4, seed = 1;
  bool barrier = false, json = false;
  apps::CommandLine app("Threads that read what their neighbour wrote, with or without a barrier.",
                        "book_race");
  app.add_option("--threads", threads, "of the block")->check(apps::whole(2, book::kMostThreads));
  app.add_option("--seed", seed, "of the order in which the emulator runs them")
      ->check(apps::whole(1, 1'000'000));
  app.add_flag("--barrier", barrier, "__syncthreads() between writing and reading");
  app.add_flag("--json", json, "print JSON");
  if (!app.parse(argc, argv)) return 0;
#ifdef RINGSMITH_VGPU
  vgpu::Settings::insist("VGPU_SEED", static_cast<std::uint64_t>(seed));
#endif

  const std::vector<Moment> moments = book::record_race(threads, barrier);
  int wrong = 0;
  nlohmann::json all = nlohmann::json::array();
  std::string text;
  for (const Moment& m : moments) {
    wrong += is_stale(m) ? 1 : 0;
    all.push_back({{"thread", m.thread},
                   {"what", name_of(m.what)},
                   {"place", m.place},
                   {"value", m.value},
                   {"stale", is_stale(m)}});
    text += as_line(m);
  }
  if (json)
    fmt::print("{}\n", nlohmann::json{{"threads", threads},
                                      {"barrier", barrier},
                                      {"seed", seed},
                                      {"moments", all},
                                      {"wrong", wrong}}
                           .dump());
  else
    fmt::print("{}{} of {} threads read a number that was not there yet\n", text, wrong, threads);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program("book_race", [&] { return run(argc, argv); });
}
