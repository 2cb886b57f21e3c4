// report.html: the contents of a run's folder as one page.
//
//   metrics.jsonl  --.
//   run.json       ---+-->  report.html     one file, light and dark, no network
//   trace.json     --'
//
// Every figure is drawn from these files, so the page can be created later, even for a run that
// died and left neither run.json nor trace.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runtime/base/units.hpp"

namespace ringsmith::apps {

// Writes run.json: the facts other than the data per step. Throws Error on failure.
void write_facts(const std::string& folder, const nlohmann::ordered_json& facts);

// Throws UsageError naming the folder if it is not the folder of a run, or naming the file if one
// is malformed.
[[nodiscard]] nlohmann::ordered_json report_data(const std::string& folder);

// Returns the path of report.html. Throws like report_data(), and Error if it cannot be written.
std::string write_report(const std::string& folder);

[[nodiscard]] std::vector<std::string> own_command_line();
// Size of this process's communication memory (buckets, slots). Pages shared between processes are
// divided among them. 0 if /proc has no such information.
[[nodiscard]] Bytes communication_memory();

}  // namespace ringsmith::apps
