// Toy models chosen to break a data-parallel wrapper, with integer weights and data. Sums are exact
// in any order, so results must equal the serial answer, and a gradient that is counted twice,
// dropped or wrongly divided is detected.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "runtime/autograd/functions.hpp"
#include "runtime/parallel/ddp.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith::test {

// Returns whole numbers in [-bound, bound].
inline Tensor integers(const Shape& sizes, std::uint32_t seed, int bound = 2) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<std::size_t>(numel_of(sizes)));
  for (float& v : values)
    v = static_cast<float>(static_cast<int>(random() % (2 * static_cast<unsigned>(bound) + 1)) -
                           bound);
  return from_vector(values, sizes);
}

struct Toy {
  std::string name;
  std::int64_t inputs = 0;
  NamedTensors parameters;
  std::function<Tensor(const Tensor& x)> forward;  // (n, inputs) -> (n, anything)

  [[nodiscard]] std::vector<Tensor> trained() const {
    std::vector<Tensor> out;
    for (const auto& [key, p] : parameters)
      if (p.requires_grad()) out.push_back(p);
    return out;
  }
  void zero_grad() const {
    for (const auto& [key, p] : parameters) p.set_grad({});
  }
};

inline Tensor trained(const Tensor& t) { return t.requires_grad_(); }

inline Toy mlp_toy(std::uint32_t seed) {
  const Tensor w1 = trained(integers({7, 5}, seed)), b1 = trained(integers({7}, seed + 1));
  const Tensor w2 = trained(integers({3, 7}, seed + 2)), b2 = trained(integers({3}, seed + 3));
  return {"mlp", 5, {{"w1", w1}, {"b1", b1}, {"w2", w2}, {"b2", b2}}, [=](const Tensor& x) {
            return linear(relu(linear(x, w1, b1)), w2, b2);
          }};
}

// One weight is used twice, as in an embedding that is also the output layer.
inline Toy tied_toy(std::uint32_t seed) {
  const Tensor w = trained(integers({4, 6}, seed)), b = trained(integers({4}, seed + 1));
  return {"tied", 6, {{"w", w}, {"b", b}}, [=](const Tensor& x) {
            return matmul(relu(linear(x, w, b)), w);
          }};
}

// A frozen layer between two trained ones, and a bias frozen at 3.
inline Toy frozen_toy(std::uint32_t seed) {
  const Tensor w1 = trained(integers({6, 4}, seed)), b1 = full({6}, 3.0);
  const Tensor w2 = integers({6, 6}, seed + 1), w3 = trained(integers({2, 6}, seed + 2));
  return {"frozen", 4, {{"w1", w1}, {"b1", b1}, {"w2", w2}, {"w3", w3}}, [=](const Tensor& x) {
            return linear(linear(relu(linear(x, w1, b1)), w2), w3);
          }};
}

// A parameter larger than any bucket, many of one element, and one without elements.
inline Toy uneven_toy(std::uint32_t seed) {
  Toy toy{"uneven", 3, {}, {}};
  const Tensor large = trained(integers({3, 20'011}, seed)), none = trained(integers({0}, seed));
  std::vector<Tensor> tiny;
  toy.parameters.emplace_back("none", none);
  for (std::uint32_t i = 0; i < 20; ++i) {
    tiny.push_back(trained(integers({1}, seed + i)));
    toy.parameters.emplace_back("before" + std::to_string(i), tiny.back());
  }
  toy.parameters.emplace_back("large", large);
  for (std::uint32_t i = 20; i < 60; ++i) {
    tiny.push_back(trained(integers({1}, seed + i)));
    toy.parameters.emplace_back("after" + std::to_string(i), tiny.back());
  }
  toy.forward = [=](const Tensor& x) {
    Tensor y = matmul(x, large);
    for (const Tensor& t : tiny) y = add(y, t);
    return add(y, sum(none));
  };
  return toy;
}

inline std::vector<Toy> all_toys(std::uint32_t seed) {
  return {mlp_toy(seed), tied_toy(seed), frozen_toy(seed), uneven_toy(seed)};
}

inline Tensor rows_of_rank(const Tensor& x, int rank, int world) {
  const std::int64_t each = x.size(0) / world;
  return x.slice(0, rank * each, (rank + 1) * each).contiguous();
}

inline void copy_parameters(const Toy& from, const Toy& to) {
  for (std::size_t i = 0; i < from.parameters.size(); ++i)
    to.parameters[i].second.detach().copy_(from.parameters[i].second);
}

}  // namespace ringsmith::test
