// Dropout masks. PyTorch's CPU generator is one long sequence, so element i can be drawn only after
// the i elements before it. A counter-based generator computes each element independently:
// Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) turns (seed,
// position) into four words by ten rounds of multiplications and xors.
//
//   element i  ->  counter offset + i / 4  ->  philox(seed, counter)  ->  word i % 4
//   keep[i] = word < keep_probability 2^32
//
// The comparison is on integers, so a mask has the same bits on every device and with any number of
// threads. The next mask starts at offset + (n + 3) / 4.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/on_device.hpp"

namespace ringsmith::kernels {

// The position in the generator's sequence at which a mask starts.
struct PhiloxState {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;  // in blocks of four words
};

using PhiloxBlock = std::array<std::uint32_t, 4>;

constexpr PhiloxBlock philox(std::uint64_t seed, std::uint64_t counter) {
  constexpr std::uint64_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  std::uint32_t c0 = static_cast<std::uint32_t>(counter);
  std::uint32_t c1 = static_cast<std::uint32_t>(counter >> 32), c2 = 0, c3 = 0;
  std::uint32_t k0 = static_cast<std::uint32_t>(seed);
  std::uint32_t k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = kMultiply0 * c0, p1 = kMultiply1 * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return {c0, c1, c2, c3};
}

// An element is kept if its word is below this value: 0 for probability 0, 2^32 (all words) for 1.
constexpr std::uint64_t keep_below(double keep_probability) {
  return static_cast<std::uint64_t>(keep_probability * 4294967296.0);
}

constexpr std::uint64_t philox_blocks(std::uint64_t n) { return (n + 3) / 4; }

// keep_probability is in [0, 1].
using DropoutMaskFn = void(std::span<bool> keep, double keep_probability, PhiloxState state);
namespace cpu {
DropoutMaskFn dropout_mask;
}
namespace cuda {
DropoutMaskFn dropout_mask;
}
RINGSMITH_ON_DEVICE(dropout_mask)

}  // namespace ringsmith::kernels
