// Text for terminals: words in lines of a width.
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

// Columns of the terminal that standard output, or another file, goes to; fallback without one.
[[nodiscard]] std::size_t terminal_width(std::size_t fallback, int file = STDOUT_FILENO);

}  // namespace ringsmith::apps
