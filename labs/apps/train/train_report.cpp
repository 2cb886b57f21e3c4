// train_report: regenerates report.html from the files in a run's folder.
#include <fmt/format.h>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"
#include "labs/apps/train/run_report.hpp"

namespace ringsmith::apps {
namespace {

int train_report(int argc, char** argv) {
  std::vector<std::string> folders;
  CommandLine app(
      "Writes report.html into the folder of a run of train_gpt or train_mlp, from metrics.jsonl "
      "and, if present, run.json and trace.json; also for a run that died or is still running.",
      "train_report");
  app.add_option("folder", folders, "folder of a run, e.g. runs/20260131-174503, or several")
      ->required();
  if (!app.parse(argc, argv)) return 0;
  for (const std::string& folder : folders) fmt::print("{}\n", write_report(folder));
  return 0;
}

}  // namespace
}  // namespace ringsmith::apps

int main(int argc, char** argv) {
  return ringsmith::apps::run_program("train_report",
                                      [&] { return ringsmith::apps::train_report(argc, argv); });
}
