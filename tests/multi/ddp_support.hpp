// Shared by the tests of DistributedDataParallel: comparisons across all ranks.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "runtime/parallel/broadcast_coalesced.hpp"
#include "tests/multi/group.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/toy_models.hpp"

namespace ringsmith::test {

inline std::string bits_of(const Tensor& t) {
  const Tensor dense = t.contiguous();
  return {reinterpret_cast<const char*>(data_of(dense)), size_in_bytes(dense).value};
}

// Collective. Returns the number of different strings across the ranks.
inline int variants(const std::string& mine) {
  const auto world = static_cast<std::size_t>(group().size());
  std::vector<std::uint8_t> in(mine.begin(), mine.end()), out(mine.size() * world);
  group().all_gather(std::span<const std::uint8_t>(in), std::span<std::uint8_t>(out));
  std::vector<std::string> seen;
  for (std::size_t r = 0; r < world; ++r) {
    const char* begin = reinterpret_cast<const char*>(out.data()) + r * mine.size();
    const std::string one(begin, mine.size());
    if (std::find(seen.begin(), seen.end(), one) == seen.end()) seen.push_back(one);
  }
  return static_cast<int>(seen.size());
}

inline std::string bits_of_parameters(const Toy& toy) {
  std::string bits;
  for (const auto& [name, p] : toy.parameters) bits += bits_of(p);
  return bits;
}

inline std::string bits_of_gradients(const Toy& toy) {
  std::string bits;
  for (const Tensor& p : toy.trained()) bits += p.grad().defined() ? bits_of(p.grad()) : "none";
  return bits;
}

}  // namespace ringsmith::test
