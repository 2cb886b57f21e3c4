#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unistd.h>

namespace ringsmith::apps {

constexpr std::size_t kPageWidth = 80;

// Wraps text at blanks into lines of at most `width` columns, or of one longer word; no newline at
// the end. The first line begins with head; if head is empty, the caller has already written the
// first `indent` columns. Later lines are indented by `indent` blanks.
[[nodiscard]] std::string wrapped(const std::string& text, std::size_t indent,
                                  std::size_t width = kPageWidth, const std::string& head = {});

// Returns the width of the terminal to which `file` is connected, in columns, or `fallback`.
[[nodiscard]] std::size_t terminal_width(std::size_t fallback, int file = STDOUT_FILENO);

}  // namespace ringsmith::apps
