// The table of the store: texts by key, with a limit on their number and size. No threads, no
// sockets, no clock: what waits for keys looks again after each change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

namespace ringsmith::comm::store {

struct TableLimits {
  std::size_t keys = std::size_t{1} << 16;
  std::size_t bytes = std::size_t{64} << 20;  // of keys and values together
};

// Meaning and errors of the operations: store.hpp. UsageError also for a key that is empty or
// longer than kMostKey, a value longer than kMostValue, and a table that is full.
class Table {
 public:
  explicit Table(TableLimits limits = {}) : limits_(limits) {}

  [[nodiscard]] const std::string* find(const std::string& key) const;  // nullptr: not there
  void set(const std::string& key, std::string value);
  std::int64_t add(const std::string& key, std::int64_t amount);
  std::string compare_and_swap(const std::string& key, const std::string& expected,
                               const std::string& desired);
  bool remove(const std::string& key);

  [[nodiscard]] std::size_t size() const { return values_.size(); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  TableLimits limits_;
  std::unordered_map<std::string, std::string> values_;
  std::size_t bytes_ = 0;
};

void check_key(const std::string& key);

}  // namespace ringsmith::comm::store
