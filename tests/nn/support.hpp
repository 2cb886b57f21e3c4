#pragma once

#include <cstring>

#include "runtime/base/rng.hpp"
#include "runtime/nn/gpt.hpp"

namespace ringsmith::test {

// FNV-1a over the bits of all parameters in tree order.
inline std::uint64_t hash_of(const Module& module) {
  std::uint64_t h = 0xcbf29ce484222325ULL;
  for (const Tensor& p : module.parameters())
    for (const float v : p.to_vector<float>()) {
      unsigned char bytes[sizeof v];
      std::memcpy(bytes, &v, sizeof v);
      for (const unsigned char b : bytes) h = (h ^ b) * 0x100000001b3ULL;
    }
  return h;
}

inline GPTOptions small_gpt() {
  return {.vocabulary = 17, .context = 8, .layers = 2, .dim = 16, .heads = 2};
}

inline Tensor random_normal(const Shape& shape) {
  Tensor t = Tensor::empty(shape);
  fill_normal(t.span<float>(), 0, 1, default_generator());
  return t;
}

}  // namespace ringsmith::test
