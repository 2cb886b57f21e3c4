// What both drivers of lab 18 use.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

namespace {

using Integers = std::vector<std::int64_t>;

// Whether a call refuses its arguments; what else it throws is not caught.
template <class Call>
bool refuses(Call call) {
  try {
    call();
  } catch (const std::invalid_argument&) {
    return true;
  }
  return false;
}

}  // namespace
