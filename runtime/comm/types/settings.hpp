// Settings that must be equal on every rank of a job, and the error message if they are not.
//
// Ranks that train with different options or data do not fail: their replicas drift apart while the
// losses keep falling. Therefore ranks compare their settings first, either when a group is made
// (GroupOptions::settings) or when the program asks for it (runtime/parallel/agreement.hpp). All
// ranks report the first difference with the same line:
//
//     --lr is 0.1 on ranks 0, 2 and 0.5 on rank 1: use the same value on all ranks
//     --x is 3 on ranks 0, 2, but rank 1 has no --x: use the same value on all ranks
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ringsmith::comm {

// {"--lr", "0.1"}: names and values. A name that occurs several times has a list of values.
using Settings = std::vector<std::pair<std::string, std::string>>;

// parse_settings() throws CommError if the text is malformed.
[[nodiscard]] std::string to_text(const Settings& settings);
[[nodiscard]] Settings parse_settings(const std::string& text);

// Throws UsageError with the line described at the top of this file if the settings of ranks
// differ. settings[r] belongs to rank r. A long value is cut to the part around the difference.
void require_equal(const std::map<int, Settings>& settings);

[[nodiscard]] std::uint64_t fnv1a(const std::string& text);

// Returns "rank 1" or "ranks 0, 2".
[[nodiscard]] std::string list_ranks(const std::vector<int>& ranks);

// Encodes a list of records as one record: "3:abc" for each.
[[nodiscard]] std::string join_records(const std::vector<std::string>& records);
// Throws CommError if the text is malformed.
[[nodiscard]] std::vector<std::string> split_records(const std::string& all);

}  // namespace ringsmith::comm
