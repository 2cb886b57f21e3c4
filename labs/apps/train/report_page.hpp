// The page of a run: text, style and script around the data, in one file that needs no network.
//
// The data are JSON in the page, and the script draws them. They cannot become markup, because the
// script writes only text nodes and attributes, and <, > and & are escaped in the JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ringsmith::apps {

// Returns a complete HTML page. run_report.cpp composes the data.
[[nodiscard]] std::string report_page(const nlohmann::ordered_json& data);

}  // namespace ringsmith::apps
