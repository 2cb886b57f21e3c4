#include "runtime/base/table.hpp"

#include <algorithm>

#include "runtime/base/error.hpp"

namespace ringsmith {

namespace {
constexpr std::size_t kGap = 2;
}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

Table& Table::row(std::vector<std::string> cells) {
  require(cells.size() == columns_.size(), "table: a row of " + std::to_string(cells.size()) +
                                               " cells for " + std::to_string(columns_.size()) +
                                               " columns");
  rows_.push_back(std::move(cells));
  return *this;
}

std::vector<std::size_t> Table::widths() const {
  std::vector<std::size_t> out;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t w = columns_[c].title.size();
    for (const auto& cells : rows_) w = std::max(w, cells[c].size());
    out.push_back(w);
  }
  return out;
}

std::size_t Table::width() const {
  std::size_t sum = columns_.empty() ? 0 : kGap * (columns_.size() - 1);
  for (const std::size_t w : widths()) sum += w;
  return sum;
}

std::string Table::str() const {
  const auto w = widths();
  std::string out;
  const auto line = [&](auto&& cell) {
    std::string text;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const std::string& value = cell(c);
      const std::string pad(w[c] - value.size(), ' ');
      if (c > 0) text.append(kGap, ' ');
      text += columns_[c].align == Align::left ? value + pad : pad + value;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + '\n';
  };
  line([&](std::size_t c) -> const std::string& { return columns_[c].title; });
  out += std::string(width(), '-') + '\n';
  for (const auto& cells : rows_)
    line([&](std::size_t c) -> const std::string& { return cells[c]; });
  return out;
}

}  // namespace ringsmith
