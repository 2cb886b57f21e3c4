#include "runtime/comm/bootstrap/records.hpp"

#include <charconv>

#include "runtime/base/error.hpp"

namespace ringsmith::comm {

std::string join_records(const std::vector<std::string>& records) {
  std::string all;
  for (const std::string& record : records) all += std::to_string(record.size()) + ':' + record;
  return all;
}

std::vector<std::string> split_records(const std::string& all) {
  std::vector<std::string> records;
  const char* const end = all.data() + all.size();
  for (const char* at = all.data(); at < end;) {
    std::size_t length = 0;
    const auto [colon, error] = std::from_chars(at, end, length);
    if (error != std::errc() || colon == end || *colon != ':' ||
        length > static_cast<std::size_t>(end - colon - 1))
      throw CommError("corrupt bootstrap record '" + all + "'");
    records.emplace_back(colon + 1, length);
    at = colon + 1 + length;
  }
  return records;
}

}  // namespace ringsmith::comm
