#include "labs/apps/common/finish.hpp"

#include <cstdio>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/report.hpp"
#include "labs/apps/common/trace_file.hpp"
#include "runtime/base/progress.hpp"

namespace ringsmith::apps {

void say(const TrainOptions& o, const comm::ProcessGroup& group, const std::string& text) {
  if (group.rank() != 0) return;
  std::FILE* out = o.json ? stderr : stdout;
  fmt::print(out, "{}\n", text);
  std::fflush(out);
}

void finish_run(comm::ProcessGroup& group, const TrainOptions& o, RunFiles& files, StepClock& clock,
                const Ending& ending) {
  clock.keep_rest();
  const Report report = make_report(group, clock, ending.device);
  const std::string model_path = files.folder + "/model.safetensors";
  together(group, [&] {
    if (group.rank() == 0) save_safetensors(model_path, ending.model, ending.metadata);
  });
  const bool trace = clock.tracing();
  if (trace) write_trace(group, clock, files.folder + "/trace.json");
  if (group.rank() != 0) return;

  const double rate =
      ending.units_per_step * static_cast<double>(report.steps) / ending.result.seconds;
  std::string text = fmt::format(
      "\n{} steps in {}: loss {:.4f} -> {:.4f}, {} {}/s on {} rank{}\n{}\n\n", report.steps,
      format_duration(ending.result.seconds), ending.result.first_loss, ending.result.last_loss,
      format_count(rate), ending.unit, group.size(), group.size() == 1 ? "" : "s", ending.headline);
  if (trace) text += time_table(report) + "\n";
  text += memory_line(report);
  text +=
      fmt::format("files: {0}/metrics.jsonl, {0}/model.safetensors{1}", files.folder,
                  trace ? ", " + files.folder + "/trace.json (open it in ui.perfetto.dev)" : "");
  say(o, group, text);

  if (o.json) {
    nlohmann::ordered_json out = {{"ranks", group.size()},
                                  {"steps", report.steps},
                                  {"seconds", ending.result.seconds},
                                  {"first_loss", ending.result.first_loss},
                                  {"last_loss", ending.result.last_loss},
                                  {std::string(ending.unit) + "_per_s", rate}};
    for (const auto& [name, value] : ending.figures) out[name] = value;
    out.update(to_json(report));
    out["run_dir"] = files.folder;
    fmt::print("{}\n", out.dump());
    std::fflush(stdout);
  }
}

}  // namespace ringsmith::apps
