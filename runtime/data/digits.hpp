// Handwritten-looking digits, drawn: a data set that needs no download.
//
// Each digit is a few pen strokes on the unit square (digits.cpp). A sample jitters their points,
// then rotates, shears, scales and shifts them, draws them with a pen of random width, and adds
// noise. Sample i depends on (seed, i) only, so a longer set begins with the shorter one.
#pragma once

#include <cstdint>

#include "runtime/data/images.hpp"

namespace ringsmith {

// n images of 28 x 28 with labels 0..9, in random order. Use another seed for held-out digits.
[[nodiscard]] GreyImages draw_digits(std::int64_t n, std::uint64_t seed);

}  // namespace ringsmith
