// Compares the vectorised reduction with the oracle, bit for bit.
#include "kernels/reduce.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::kernels;

namespace {

using Bytes1 = std::vector<std::byte>;
constexpr std::size_t kGuard = 32;

// Random values including NaN, infinity, both zeros and extreme integers. All NaNs have the same
// bits, because the payload of the sum of two NaNs is unspecified.
template <class T>
T random_value(std::mt19937& random) {
  const auto r = random();
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(random() | static_cast<std::uint64_t>(r) << 32);
  } else {
    switch (r % 16) {
      case 0:
        return T(std::numeric_limits<float>::quiet_NaN());
      case 1:
        return T(std::numeric_limits<float>::infinity());
      case 2:
        return T(-0.0F);
      case 3:
        return T(0.0F);
      default:
        return T(std::ldexp(static_cast<float>(static_cast<int>(r >> 8) - (1 << 23)),
                            static_cast<int>(random() % 24) - 30));
    }
  }
}

template <class T>
bool is_nan(const std::byte* p) {
  if constexpr (std::is_integral_v<T>) {
    return false;
  } else {
    T x;
    std::memcpy(&x, p, sizeof(T));
    if constexpr (sizeof(T) == 2)
      return std::isnan(static_cast<float>(x));
    else
      return std::isnan(x);
  }
}

// True if all elements have equal bits or are NaN on both sides, and the bytes around are equal.
template <class T>
bool same(const Bytes1& a, const Bytes1& b, std::size_t offset, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::byte *x = a.data() + offset + i * sizeof(T), *y = b.data() + offset + i * sizeof(T);
    if (std::memcmp(x, y, sizeof(T)) != 0 && !(is_nan<T>(x) && is_nan<T>(y))) return false;
  }
  return std::memcmp(a.data(), b.data(), offset) == 0 &&
         std::memcmp(a.data() + offset + count * sizeof(T), b.data() + offset + count * sizeof(T),
                     kGuard) == 0;
}

template <class T>
void compare(Reduction op, std::size_t n_sources, std::size_t n_out, std::size_t count,
             std::size_t offset, bool in_place, bool scale) {
  std::mt19937 random(static_cast<unsigned>(n_sources * 1000 + count * 10 + offset));
  std::vector<Bytes1> input(n_sources, Bytes1(offset + count * sizeof(T) + kGuard));
  for (auto& bytes : input)
    for (std::size_t i = 0; i < count; ++i) {
      const T x = random_value<T>(random);
      std::memcpy(bytes.data() + offset + i * sizeof(T), &x, sizeof(T));
    }
  const auto run = [&](auto&& function) {
    std::vector<Bytes1> sources = input, out(n_out, Bytes1(input[0].size()));
    std::vector<ReduceSource> s;
    std::vector<std::byte*> d;
    for (std::size_t i = 0; i < n_sources; ++i)
      s.push_back({sources[i].data() + offset, scale && i != 1});
    for (std::size_t i = 0; i < n_out; ++i)
      d.push_back((in_place && i < n_sources ? sources[n_sources - 1 - i] : out[i]).data() +
                  offset);
    function(dtype_of<T>(), op, s, d, Elements(count), scale ? 1.0 / 3 : 1.0);
    std::vector<Bytes1> results;
    for (std::size_t i = 0; i < n_out; ++i)
      results.push_back(in_place && i < n_sources ? sources[n_sources - 1 - i] : out[i]);
    return results;
  };
  const auto fast = run(cpu::reduce), oracle = run(cpu::reduce_oracle);
  for (std::size_t i = 0; i < n_out; ++i) {
    INFO("operation " << static_cast<int>(op) << ", " << n_sources << " sources, " << n_out
                      << " destinations, count " << count << ", offset " << offset
                      << (in_place ? ", in place" : "") << (scale ? ", scaled" : ""));
    CHECK(same<T>(fast[i], oracle[i], offset, count));
  }
}

}  // namespace

TEMPLATE_TEST_CASE("the fast reduction and the oracle give the same bits", "[reduce]", float, f16,
                   bf16, double, std::int32_t, std::int64_t, std::uint8_t) {
  for (const auto op : {Reduction::sum, Reduction::prod, Reduction::min, Reduction::max})
    for (const std::size_t sources : {1, 2, 3, 5, 8})
      for (const std::size_t out : {1, 2, 3})
        for (const std::size_t count : {0, 1, 31, 64, 65, 1031})
          for (const bool in_place : {false, true})
            for (const bool scale : {false, true}) {
              if (scale && std::is_integral_v<TestType>) continue;
              compare<TestType>(op, sources, out, count, in_place ? 3 : 0, in_place, scale);
            }
}

TEST_CASE("one call with n sources rounds like n - 1 calls with two", "[reduce]") {
  std::mt19937 random(1);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    constexpr std::size_t kCount = 999;
    std::vector<Bytes1> x(5, Bytes1(kCount * size_of(dtype)));
    visit_dtype(dtype, [&]<class T>(TypeTag<T>) {
      if constexpr (std::is_same_v<T, float> || sizeof(T) == 2)
        for (auto& bytes : x)
          for (std::size_t i = 0; i < kCount; ++i) {
            const T value(std::ldexp(static_cast<float>(random() % 1000) - 500.0F,
                                     static_cast<int>(random() % 8)));
            std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
          }
    });
    Bytes1 at_once(x[0].size()), chain = x[0];
    std::vector<ReduceSource> sources;
    for (auto& bytes : x) sources.push_back({bytes.data(), false});
    std::byte* d = at_once.data();
    cpu::reduce(dtype, Reduction::sum, sources, {&d, 1}, Elements(kCount));
    for (std::size_t s = 1; s < x.size(); ++s) {
      const ReduceSource pair[] = {{chain.data(), false}, {x[s].data(), false}};
      d = chain.data();
      cpu::reduce(dtype, Reduction::sum, pair, {&d, 1}, Elements(kCount));
    }
    CHECK(at_once == chain);
  }
}

TEST_CASE("reductions refuse bool, no sources, and averages of integers", "[reduce]") {
  std::byte b[8]{};
  std::byte* d = b;
  const ReduceSource two[] = {{b, true}, {b, true}};
  CHECK_THROWS_AS(cpu::reduce(DType::boolean, Reduction::max, two, {&d, 1}, Elements(1)),
                  UsageError);
  CHECK_THROWS_AS(cpu::reduce(DType::f32, Reduction::sum, {}, {&d, 1}, Elements(1)), UsageError);
  CHECK_THROWS_AS(cpu::reduce(DType::i32, Reduction::sum, two, {&d, 1}, Elements(1), 0.5),
                  UsageError);
}
