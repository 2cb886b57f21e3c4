// book_pipeline: a pipeline's schedule, checked and simulated.
//
//     book_pipeline --schedule 1f1b --stages 4 --microbatches 8 --backward 2 --message 0.1
//
// A live figure of the book. The schedules are the runtime's (runtime/comm/schedule/pipeline), so
// are the checker and the simulator (runtime/analysis/pipeline). A forward takes one unit of time.
#include "runtime/analysis/pipeline.hpp"

#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"
#include "runtime/comm/schedule/pipeline.hpp"

using namespace ringsmith;
using nlohmann::json;

namespace {

struct Options {
  std::string schedule = "1f1b";
  int stages = 4, microbatches = 8;
  double backward = 2, message = 0;  // in forwards
  bool json = false;
};

double rounded(double x) { return std::round(x * 1e4) / 1e4; }

std::string as_json(const Options& o, const comm::PipelineSimulation& played,
                    const std::vector<int>& stored) {
  json events = json::array();
  for (const comm::StageEvent& e : played.events)
    events.push_back({{"stage", e.stage},
                      {"micro", e.action.microbatch},
                      {"forward", e.action.pass == comm::PipelinePass::forward},
                      {"begin", rounded(e.began)},
                      {"end", rounded(e.finished)}});
  return json{{"stages", o.stages},
              {"microbatches", o.microbatches},
              {"events", events},
              {"time", rounded(played.seconds)},
              {"bubble", rounded(played.bubble)},
              {"ideal", rounded(comm::ideal_bubble(o.stages, o.microbatches))},
              {"stored", stored}}
      .dump();
}

int run(int argc, char** argv) {
  Options o;
  apps::CommandLine app("A pipeline's schedule, checked and simulated.", "book_pipeline");
  app.add_option("--schedule", o.schedule, "gpipe or 1f1b")->check(apps::one_of({"gpipe", "1f1b"}));
  app.add_option("--stages", o.stages, "")->check(apps::whole(1, 16));
  app.add_option("--microbatches", o.microbatches, "")->check(apps::whole(1, 64));
  app.add_option("--backward", o.backward, "time of a backward, in forwards")
      ->check(apps::real(0.1, 10));
  app.add_option("--message", o.message, "time of a message, in forwards")
      ->check(apps::real(0, 10));
  app.add_flag("--json", o.json, "print JSON");
  if (!app.parse(argc, argv)) return 0;
  const auto schedule = comm::pipeline_schedule(o.schedule, o.stages, o.microbatches);
  const auto played =
      comm::simulate(schedule, {.forward = 1, .backward = o.backward, .link = {o.message, 0}});
  const std::vector<int> stored = comm::most_stored(schedule);
  if (o.json) {
    fmt::print("{}\n", as_json(o, played, stored));
    return 0;
  }
  fmt::print("{}", comm::draw(schedule));
  fmt::print("time {:.2f} forwards, bubble {:.1f} % (without messages {:.1f} %)\n", played.seconds,
             100 * played.bubble, 100 * comm::ideal_bubble(o.stages, o.microbatches));
  fmt::print("stored on each stage, at most: {}\n", fmt::join(stored, " "));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program("book_pipeline", [&] { return run(argc, argv); });
}
