// The page of a run: its text, style and script around the data, in one file that asks no network.
//
// The data are JSON in the page, and the script draws them: nothing of them becomes markup, because
// the script writes text nodes and attributes only, and in the JSON <, > and & are escaped.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ringsmith::apps {

// A whole HTML page. What data holds: run_report.cpp.
[[nodiscard]] std::string report_page(const nlohmann::ordered_json& data);

}  // namespace ringsmith::apps
