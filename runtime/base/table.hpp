// A small text table: columns as wide as their widest cell, two spaces between them, numbers
// right-aligned.
//
//   phase          ms/step   share
//   --------------------------------
//   forward           12.3   41.0 %
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ringsmith {

class Table {
 public:
  enum class Align : std::uint8_t { left, right };
  struct Column {
    std::string title;
    Align align = Align::right;
  };

  explicit Table(std::vector<Column> columns);
  Table& row(std::vector<std::string> cells);  // UsageError unless one cell per column
  [[nodiscard]] std::string str() const;       // ends with a newline; no trailing blanks
  [[nodiscard]] std::size_t width() const;     // characters of the widest line

 private:
  [[nodiscard]] std::vector<std::size_t> widths() const;
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace ringsmith
