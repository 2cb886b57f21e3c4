// Gives drivers access to the kit's counts, which students cannot see.
#pragma once

#include <cstdint>
#include <vector>

#include "labs/kit/loads.hpp"

namespace kit {

struct Audit {
  // Storages (storage.hpp): their costs, and access to their numbers that does not count as a cost.
  static void begin();                                    // costs from here on
  [[nodiscard]] static std::vector<std::int64_t> cost();  // elements allocated, reads, writes
  [[nodiscard]] static std::int64_t count();              // storages so far, freed ones included
  [[nodiscard]] static bool freed(std::int64_t number);
  [[nodiscard]] static std::vector<double>& numbers(std::int64_t number);

  // Arrays of type Loads (loads.hpp). `number` selects one of two arrays: 0 or 1. hide: enciphers
  // the elements for device memory. open: returns the array of the elements that are hidden there.
  [[nodiscard]] static std::vector<float> hide(std::uint64_t number, std::vector<float> elements);
  [[nodiscard]] static Loads<float> open(std::uint64_t number, const float* memory);
  [[nodiscard]] static std::int64_t loads(std::uint64_t number);
};

}  // namespace kit
