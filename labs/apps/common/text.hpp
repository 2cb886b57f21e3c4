// Text for terminals: words in lines of a width, and what others wrote, shown but not obeyed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unistd.h>

namespace ringsmith::apps {

constexpr std::size_t kPageWidth = 80;

// The words of text in lines of at most `width` columns, without a newline at the end. The first
// line begins with head, or, if that is empty, stands behind `indent` columns that the caller has
// written; every other one begins with `indent` blanks.
[[nodiscard]] std::string wrapped(const std::string& text, std::size_t indent,
                                  std::size_t width = kPageWidth, const std::string& head = {});

// Characters of UTF-8 stay; what would move the cursor or change colours (control characters), and
// bytes that are no UTF-8, become \xHH.
[[nodiscard]] std::string printable(std::string_view text);

// Columns of the terminal that standard output, or another file, goes to; fallback without one.
[[nodiscard]] std::size_t terminal_width(std::size_t fallback, int file = STDOUT_FILENO);

}  // namespace ringsmith::apps
