// report.html: what a run's folder holds, as one page to look at.
//
//   metrics.jsonl  --.
//   run.json       ---+-->  report.html     one file, light and dark, no network
//   trace.json     --'
//
// Every figure comes from those files, so that the page can be made again later, and of a run that
// died: then run.json is missing, and trace.json too.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runtime/base/units.hpp"

namespace ringsmith::apps {

// run.json: the facts of a run that are not those of a step. Error if it cannot be written.
void write_facts(const std::string& folder, const nlohmann::ordered_json& facts);

// What the page shows. UsageError naming the file if the folder is none of a run, or a file in it
// was changed by somebody.
[[nodiscard]] nlohmann::ordered_json report_data(const std::string& folder);

// Writes FOLDER/report.html and returns its path. UsageError as above, Error if it cannot be
// written.
std::string write_report(const std::string& folder);

// The arguments that this process was started with.
[[nodiscard]] std::vector<std::string> own_command_line();
// What communication memory (buckets, slots) costs this process: pages that processes share are
// divided among them. 0 where /proc does not tell.
[[nodiscard]] Bytes communication_memory();

}  // namespace ringsmith::apps
