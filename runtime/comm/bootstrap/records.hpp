// A list of records as one record: "3:abc" for each.
#pragma once

#include <string>
#include <vector>

namespace ringsmith::comm {

[[nodiscard]] std::string join_records(const std::vector<std::string>& records);
// CommError for what join_records() did not make.
[[nodiscard]] std::vector<std::string> split_records(const std::string& all);

}  // namespace ringsmith::comm
