// Shared by both drivers of lab 18.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

namespace {

using Integers = std::vector<std::int64_t>;

// True if the call throws std::invalid_argument; other exceptions propagate.
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
