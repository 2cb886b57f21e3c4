// report.html: the contents of a run's folder as one page.
//
//   metrics.jsonl  --.
//   run.json       ---+-->  report.html     one file, light and dark, no network
//   trace.json     --'
//
// Every figure is drawn from these files, so that the page can be regenerated later, even for a run
// that died and has no run.json and trace.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runtime/base/units.hpp"

namespace ringsmith::apps {

// Writes run.json: the facts about a run other than the data per step. Throws Error on failure.
void write_facts(const std::string& folder, const nlohmann::ordered_json& facts);

// The contents of the page. Throws UsageError naming the file if the folder is not a run's, or if a
// file in it has been modified.
[[nodiscard]] nlohmann::ordered_json report_data(const std::string& folder);

// Writes FOLDER/report.html and returns its path. Throws UsageError as above, Error if it cannot be
// written.
std::string write_report(const std::string& folder);

// The command-line arguments of this process.
[[nodiscard]] std::vector<std::string> own_command_line();
// Size of this process's communication memory (buckets, slots); pages shared between processes are
// divided among them. 0 if /proc does not tell.
[[nodiscard]] Bytes communication_memory();

}  // namespace ringsmith::apps
