#include "runtime/comm/bootstrap/store/table.hpp"

#include <charconv>

#include "runtime/base/error.hpp"
#include "runtime/comm/bootstrap/store/store.hpp"

namespace ringsmith::comm::store {

void check_key(const std::string& key) {
  require(!key.empty(), "a key of the store must not be empty");
  require(key.size() <= kMostKey, "a key of " + std::to_string(key.size()) +
                                      " bytes: the store takes at most " +
                                      std::to_string(kMostKey));
}

const std::string* Table::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

void Table::set(const std::string& key, std::string value) {
  check_key(key);
  require(value.size() <= kMostValue,
          "key '" + key + "': a value of " + std::to_string(value.size()) +
              " bytes: the store takes at most " + std::to_string(kMostValue));
  const auto found = values_.find(key);
  const bool is_new = found == values_.end();
  const std::size_t before = is_new ? 0 : key.size() + found->second.size();
  const std::size_t after = key.size() + value.size();
  require(bytes_ - before + after <= limits_.bytes && values_.size() + is_new <= limits_.keys,
          "key '" + key + "': the store is full (" + std::to_string(values_.size()) + " keys, " +
              std::to_string(bytes_) + " bytes)");
  bytes_ += after - before;
  if (is_new)
    values_.emplace(key, std::move(value));
  else
    found->second = std::move(value);
}

std::int64_t Table::add(const std::string& key, std::int64_t amount) {
  std::int64_t value = 0;
  if (const std::string* text = find(key); text != nullptr) {
    const char* const end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, value);
    require(error == std::errc() && stop == end,
            "key '" + key + "' holds no number that could be added to");
  }
  require(!__builtin_add_overflow(value, amount, &value),
          "key '" + key + "': the sum does not fit 64 bits");
  set(key, std::to_string(value));
  return value;
}

std::string Table::compare_and_swap(const std::string& key, const std::string& expected,
                                    const std::string& desired) {
  check_key(key);
  const std::string* const text = find(key);
  std::string now = text != nullptr ? *text : "";
  if (now != expected) return now;
  set(key, desired);
  return desired;
}

bool Table::remove(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  bytes_ -= key.size() + found->second.size();
  values_.erase(found);
  return true;
}

}  // namespace ringsmith::comm::store
