// The report on a run: one HTML file that needs no network.
//
// The script in the page draws the data, which are JSON. The data cannot become markup, because the
// script writes only text nodes and attributes, and <, > and & are escaped.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ringsmith::apps {

// run_report.cpp composes the data.
[[nodiscard]] std::string report_page(const nlohmann::ordered_json& data);

}  // namespace ringsmith::apps
