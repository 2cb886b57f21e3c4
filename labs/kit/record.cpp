#include "labs/kit/record.hpp"

#include <cstring>
#include <sstream>
#include <stdexcept>

namespace kit {
namespace {

template <class T>
std::vector<T> array_of(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

}  // namespace

const Record::Value& Record::find(std::string_view name, char code) const {
  const auto at = values_.find(name);
  if (at == values_.end()) throw std::logic_error("no value named " + std::string(name));
  if (at->second.code != code)
    throw std::logic_error(std::string(name) + " has type " + at->second.code + ", asked for as " +
                           code);
  return at->second;
}

void Record::set(std::string_view name, char code, const void* data, std::size_t bytes) {
  Value& value = values_[std::string(name)];
  value.code = code;
  value.bytes.assign(static_cast<const char*>(data), bytes);
}

bool Record::has(std::string_view name) const { return values_.contains(name); }
void Record::remove(std::string_view name) { values_.erase(std::string(name)); }

std::int64_t Record::integer(std::string_view name) const {
  return array_of<std::int64_t>(find(name, 'i').bytes).at(0);
}
std::int64_t Record::integer(std::string_view name, std::int64_t fallback) const {
  return has(name) ? integer(name) : fallback;
}
double Record::number(std::string_view name) const {
  return array_of<double>(find(name, 'd').bytes).at(0);
}
double Record::number(std::string_view name, double fallback) const {
  return has(name) ? number(name) : fallback;
}
std::string Record::text(std::string_view name) const { return find(name, 's').bytes; }
std::string Record::text(std::string_view name, std::string_view fallback) const {
  return has(name) ? text(name) : std::string(fallback);
}
std::vector<std::int64_t> Record::integers(std::string_view name) const {
  return array_of<std::int64_t>(find(name, 'I').bytes);
}
std::vector<double> Record::numbers(std::string_view name) const {
  return array_of<double>(find(name, 'D').bytes);
}
std::vector<float> Record::floats(std::string_view name) const {
  return array_of<float>(find(name, 'F').bytes);
}

void Record::put(std::string_view name, std::int64_t value) { set(name, 'i', &value, 8); }
void Record::put(std::string_view name, double value) { set(name, 'd', &value, 8); }
void Record::put(std::string_view name, std::string_view text) {
  set(name, 's', text.data(), text.size());
}
void Record::put(std::string_view name, std::span<const std::int64_t> values) {
  set(name, 'I', values.data(), values.size_bytes());
}
void Record::put(std::string_view name, std::span<const double> values) {
  set(name, 'D', values.data(), values.size_bytes());
}
void Record::put(std::string_view name, std::span<const float> values) {
  set(name, 'F', values.data(), values.size_bytes());
}
void Record::put(std::string_view name, std::span<const std::byte> bytes) {
  set(name, 'B', bytes.data(), bytes.size());
}

void Record::merge(const Record& other, std::string_view suffix) {
  for (const auto& [name, value] : other.values_) values_[name + std::string(suffix)] = value;
}

std::string Record::encode() const {
  std::string encoded;
  for (const auto& [name, value] : values_) {
    encoded += name + ' ' + value.code + ' ' + std::to_string(value.bytes.size()) + '\n';
    encoded += value.bytes + '\n';
  }
  return encoded;
}

Record Record::decode(std::string_view encoded) {
  Record record;
  while (!encoded.empty()) {
    const std::size_t line = encoded.find('\n');
    if (line == std::string_view::npos) throw std::logic_error("a record without an end");
    std::istringstream head{std::string(encoded.substr(0, line))};
    std::string name;
    char code = 0;
    std::size_t bytes = 0;
    if (!(head >> name >> code >> bytes) || encoded.size() < line + 2 + bytes)
      throw std::logic_error("a torn record");
    record.set(name, code, encoded.data() + line + 1, bytes);
    encoded.remove_prefix(line + 2 + bytes);
  }
  return record;
}

}  // namespace kit
