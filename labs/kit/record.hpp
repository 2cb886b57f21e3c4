// Named values, which the judge (labs/course/record.py) and a driver send to each other:
//
//     NAME CODE BYTES\n<raw bytes>\n        for each value
//
// | code | C++                | Python            |
// |------|--------------------|-------------------|
// | i    | int64              | int               |
// | d    | double             | float             |
// | s    | text               | str               |
// | I    | array of int64     | array('q')        |
// | D    | array of double    | array('d')        |
// | F    | array of float     | array('f')        |
// | B    | bytes              | bytes             |
//
// A driver receives inputs and answers with observations. It never judges: expected values stay in
// the judge's process, whose memory the student's code cannot read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kit {

class Record {
 public:
  // Reading. A missing name without a fallback, or a wrong type, is a mistake by the lab's author
  // and throws std::logic_error.
  [[nodiscard]] bool has(std::string_view name) const;
  [[nodiscard]] std::int64_t integer(std::string_view name) const;
  [[nodiscard]] std::int64_t integer(std::string_view name, std::int64_t fallback) const;
  [[nodiscard]] double number(std::string_view name) const;
  [[nodiscard]] double number(std::string_view name, double fallback) const;
  [[nodiscard]] std::string text(std::string_view name) const;
  [[nodiscard]] std::string text(std::string_view name, std::string_view fallback) const;
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view name) const;
  [[nodiscard]] std::vector<double> numbers(std::string_view name) const;
  [[nodiscard]] std::vector<float> floats(std::string_view name) const;

  // Writing. Names have no blanks; "out.3" is rank 3's value.
  void put(std::string_view name, std::int64_t value);
  void put(std::string_view name, int value) { put(name, std::int64_t{value}); }
  void put(std::string_view name, std::size_t value) { put(name, std::int64_t(value)); }
  void put(std::string_view name, bool value) { put(name, std::int64_t{value}); }
  void put(std::string_view name, double value);
  void put(std::string_view name, std::string_view text);
  void put(std::string_view name, const char* text) { put(name, std::string_view(text)); }
  void put(std::string_view name, std::span<const std::int64_t> values);
  void put(std::string_view name, std::span<const double> values);
  void put(std::string_view name, std::span<const float> values);
  void put(std::string_view name, std::span<const std::byte> bytes);
  template <class T>
  void put(std::string_view name, const std::vector<T>& values) {
    put(name, std::span<const T>(values));
  }

  void remove(std::string_view name);
  void merge(const Record& other, std::string_view suffix);  // adds its values as NAME + suffix
  [[nodiscard]] std::string encode() const;
  static Record decode(std::string_view encoded);

 private:
  struct Value {
    char code;
    std::string bytes;
  };
  const Value& find(std::string_view name, char code) const;
  void set(std::string_view name, char code, const void* data, std::size_t bytes);
  std::map<std::string, Value, std::less<>> values_;
};

using Request = Record;
using Observation = Record;

}  // namespace kit
