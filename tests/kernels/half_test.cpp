// Products of 16-bit matrices must have the bits of the float product of the widened matrices,
// rounded once, and conversions of whole arrays must equal kernels/half.hpp. Products by bf16
// instructions (kernels/cpu/fast/matmul_bf16.hpp) are compared with the exact sums, for every kind
// that this processor has. `make test-bf16` runs this on emulated processors with these
// instructions.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/copy.hpp"
#include "kernels/cpu/gemm.hpp"
#include "kernels/matmul.hpp"
#include "tests/kernels/support.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::kernels;
using ringsmith::testing::distance;
using ringsmith::testing::ModeScope;
using ringsmith::testing::random_values;

namespace {

template <class T>
struct Stored {
  std::vector<T> memory;
  Matrix<T> matrix;

  Stored(const std::vector<float>& values, std::int64_t rows, std::int64_t cols, int layout)
      : memory(static_cast<std::size_t>(4 * (rows + 3) * (cols + 3)),
               T(std::numeric_limits<float>::quiet_NaN())) {
    matrix = {memory.data(), rows, cols, cols, 1};
    if (layout == 1) matrix = {memory.data(), rows, cols, 1, rows};
    if (layout == 2) matrix = {memory.data() + 1, rows, cols, cols + 3, 1};
    if (layout == 3) matrix = {memory.data() + 1, rows, cols, 2 * (cols + 1), 2};
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c)
        matrix(r, c) = T(values[static_cast<std::size_t>(r * cols + c)]);
  }
  Stored(const Stored&) = delete;
  Stored& operator=(const Stored&) = delete;
  [[nodiscard]] std::vector<float> wide() const {
    std::vector<float> out;
    for (std::int64_t r = 0; r < matrix.rows; ++r)
      for (std::int64_t c = 0; c < matrix.cols; ++c)
        out.push_back(static_cast<float>(matrix(r, c)));
    return out;
  }
  [[nodiscard]] std::size_t nans() const {
    std::size_t n = 0;
    for (const T x : memory) n += std::isnan(static_cast<float>(x)) ? 1U : 0U;
    return n;
  }
};

template <class T>
std::vector<float> rounded(std::vector<float> values) {
  for (float& v : values) v = static_cast<float>(T(v));
  return values;
}

class Bf16Scope {
 public:
  explicit Bf16Scope(Bf16Products how) : previous_(bf16_products()) { set_bf16_products(how); }
  ~Bf16Scope() { set_bf16_products(previous_); }
  Bf16Scope(const Bf16Scope&) = delete;
  Bf16Scope& operator=(const Bf16Scope&) = delete;

 private:
  Bf16Products previous_;
};

using Shapes = std::vector<std::vector<std::int64_t>>;

template <class T>
void check_bits(const Shapes& shapes) {
  for (const auto& s : shapes)
    for (int layout = 0; layout < 64; layout += 5)
      for (const Store how : {Store::replace, Store::add}) {
        const Stored<T> a(random_values(s[0] * s[2], 1), s[0], s[2], layout % 4);
        const Stored<T> b(random_values(s[2] * s[1], 2), s[2], s[1], layout / 4 % 4);
        const Stored<T> c(random_values(s[0] * s[1], 3), s[0], s[1], layout / 16);
        const std::vector<float> left = a.wide(), right = b.wide();
        std::vector<float> want = c.wide();
        const std::size_t gaps = c.nans();
        cpu::matmul<float>(row_major(left.data(), s[0], s[2]), row_major(right.data(), s[2], s[1]),
                           row_major(want.data(), s[0], s[1]), how);
        cpu::matmul<T>(a.matrix, b.matrix, c.matrix, how);
        INFO(s[0] << " x " << s[1] << " x " << s[2] << ", layout " << layout);
        REQUIRE(c.wide() == rounded<T>(want));
        REQUIRE(c.nans() == gaps);
      }
}

template <class T>
std::vector<std::uint16_t> bits_of(const std::vector<T>& values) {
  std::vector<std::uint16_t> out;
  for (const T v : values) out.push_back(v.bits);
  return out;
}

// The exact values of a b + begin, and a bound on the error of a float sum in any order: k + 2
// operations, each of which rounds to 24 bits or flushes to zero.
struct Exact {
  std::vector<double> sums, bounds;

  Exact(const std::vector<float>& a, const std::vector<float>& b, const std::vector<float>& begin,
        std::int64_t m, std::int64_t n, std::int64_t k) {
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        const double first = begin[static_cast<std::size_t>(i * n + j)];
        double sum = first, magnitudes = std::abs(first);
        for (std::int64_t p = 0; p < k; ++p) {
          const double product = static_cast<double>(a[static_cast<std::size_t>(i * k + p)]) *
                                 static_cast<double>(b[static_cast<std::size_t>(p * n + j)]);
          sum += product;
          magnitudes += std::abs(product);
        }
        sums.push_back(sum);
        bounds.push_back(static_cast<double>(k + 2) * (0x1.01p-24 * magnitudes + 0x1p-126));
      }
  }
  // True if each number is the rounded value of a sum within the bound.
  [[nodiscard]] bool allows(const std::vector<float>& got) const {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    const auto rounded_to = [](double x, float outwards) {
      return static_cast<float>(bf16(std::nextafter(static_cast<float>(x), outwards)));
    };
    bool all = got.size() == sums.size();
    for (std::size_t i = 0; all && i < got.size(); ++i)
      all = rounded_to(sums[i] - bounds[i], -kInf) <= got[i] &&
            got[i] <= rounded_to(sums[i] + bounds[i], kInf);
    return all;
  }
  // True if each number is the sum, rounded once. Only valid if every partial sum is a float.
  [[nodiscard]] bool equals(const std::vector<float>& got) const {
    return got == rounded<bf16>(std::vector<float>(sums.begin(), sums.end()));
  }
};

// Returns integers so small that one product too many or too few changes a sum visibly.
std::vector<float> small_integers(std::int64_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& v : values) v = static_cast<float>(static_cast<int>(generator() % 5) - 2);
  return values;
}

// Checks every storage order of a and b. Large sizes skip some combinations, but check each order
// at least once.
void check_bf16_shape(std::int64_t m, std::int64_t n, std::int64_t k, bool integers) {
  const auto values = [&](std::int64_t count, unsigned seed) {
    return rounded<bf16>(integers ? small_integers(count, seed) : random_values(count, seed));
  };
  const std::vector<float> left = values(m * k, 1), right = values(k * n, 2);
  const std::vector<float> before = values(m * n, 3), zeros(before.size());
  const Exact fresh(left, right, zeros, m, n, k), added(left, right, before, m, n, k);
  for (int layout = 0; layout<16; layout += m * n * k> 20'000 ? 3 : 1)
    for (const Store how : {Store::replace, Store::add}) {
      const Stored<bf16> a(left, m, k, layout % 4), b(right, k, n, layout / 4);
      const Stored<bf16> c(before, m, n, (layout + layout / 4) % 4);
      const std::size_t gaps = c.nans();
      cpu::matmul<bf16>(a.matrix, b.matrix, c.matrix, how);
      const Exact& exact = how == Store::add ? added : fresh;
      INFO(m << " x " << n << " x " << k << ", layout " << layout << ", "
             << (how == Store::add ? "added" : "replaced"));
      if (integers)
        REQUIRE(exact.equals(c.wide()));
      else
        REQUIRE(exact.allows(c.wide()));
      REQUIRE(c.nans() == gaps);
    }
}

// Floats whose low bits are at, below and above a tie of T, and values near the types' limits.
template <class T>
std::vector<float> awkward_floats() {
  std::vector<float> out;
  for (std::uint32_t code = 0; code < 65536; code += 7) {
    T x;
    x.bits = static_cast<std::uint16_t>(code);
    const auto exact = std::bit_cast<std::uint32_t>(static_cast<float>(x));
    for (const std::uint32_t more : {0U, 1U, 0xfffU, 0x1000U, 0x1001U, 0x7fffU, 0x8000U, 0x8001U})
      out.push_back(std::bit_cast<float>(exact + more));
  }
  for (const float x : {1e-45F, 1e-8F, 65519.0F, 65520.0F, 3.4e38F}) out.push_back(x);
  return out;
}

template <class T>
void check_conversions() {
  const std::vector<float> wide = awkward_floats<T>();
  std::vector<T> narrow(wide.size()), want;
  for (const float x : wide) want.push_back(T(x));
  const auto layout = [](std::size_t n) {
    Layout l;
    l.dims = 1;
    l.sizes[0] = static_cast<std::int64_t>(n);
    l.strides[0] = 1;
    return l;
  };
  cpu::copy<T, float>({narrow.data(), layout(wide.size())}, {wide.data(), layout(wide.size())});
  CHECK(bits_of(narrow) == bits_of(want));

  std::vector<T> codes(65536);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i].bits = static_cast<std::uint16_t>(i);
  std::vector<float> floats(codes.size());
  cpu::copy<float, T>({floats.data(), layout(codes.size())}, {codes.data(), layout(codes.size())});
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const auto one = static_cast<float>(codes[i]);
    REQUIRE((std::isnan(one)
                 ? std::isnan(floats[i])
                 : std::bit_cast<std::uint32_t>(one) == std::bit_cast<std::uint32_t>(floats[i])));
  }
}

}  // namespace

TEST_CASE("arrays are widened and rounded as one number is: all codes, ties, NaN, infinity") {
  check_conversions<bf16>();
  check_conversions<f16>();
}

TEST_CASE("a 16-bit product is the float product of the widened matrices, rounded once") {
  const Shapes shapes = {{1, 1, 1},     {1, 17, 3},     {17, 1, 33},   {31, 65, 127}, {64, 33, 70},
                         {255, 9, 300}, {257, 258, 40}, {5, 600, 513}, {513, 520, 20}};
  const Bf16Scope on_any_processor(Bf16Products::widened);
  for (const auto mode : {Mode::fast, Mode::oracle}) {
    const ModeScope scope(mode);
    check_bits<bf16>(mode == Mode::fast ? shapes : Shapes(shapes.begin(), shapes.begin() + 4));
    check_bits<f16>(mode == Mode::fast ? shapes : Shapes(shapes.begin(), shapes.begin() + 4));
  }
}

TEST_CASE("bf16 products, by everything that this processor has for them, are the exact sums") {
  // Sizes around multiples of vectors, tiles, pairs and blocks.
  const Shapes shapes = {{1, 1, 1},     {1, 17, 2},   {2, 16, 3},    {5, 15, 31},   {6, 63, 32},
                         {7, 64, 33},   {13, 65, 34}, {16, 32, 64},  {17, 33, 65},  {32, 48, 16},
                         {33, 1, 70},   {47, 80, 63}, {48, 112, 17}, {3, 260, 257}, {257, 4, 300},
                         {4, 7, 513},   {1, 1, 1000}, {64, 65, 96},  {34, 31, 256}, {31, 18, 255},
                         {513, 18, 34}, {3, 514, 258}};
  for (const Bf16Products products : bf16_products_here()) {
    const Bf16Scope scope(products);
    INFO(name_of(products));
    for (const auto& s : shapes)
      for (const bool integers : {true, false}) check_bf16_shape(s[0], s[1], s[2], integers);
  }
}

TEST_CASE(
    "bf16 products, by everything: nothing in, NaN, infinity, threads, numbers below 2^-126") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  for (const Bf16Products products : bf16_products_here()) {
    const Bf16Scope scope(products);
    INFO(name_of(products));
    for (const Store how : {Store::replace, Store::add}) {
      const Stored<bf16> a({}, 5, 0, 0), b({}, 0, 7, 0), c(std::vector<float>(35, 3.0F), 5, 7, 0);
      cpu::matmul<bf16>(a.matrix, b.matrix, c.matrix, how);
      CHECK(c.wide() == std::vector<float>(35, how == Store::add ? 3.0F : 0.0F));
      const Stored<bf16> no_rows({}, 0, 5, 0), none({}, 0, 5, 0),
          square(random_values(25, 1), 5, 5, 0);
      cpu::matmul<bf16>(no_rows.matrix, square.matrix, none.matrix, how);
      cpu::matmul<bf16>(square.matrix, no_rows.matrix.t(), none.matrix.t(), how);
    }

    // A single non-finite number in the last row, column and k must affect only its own row or
    // column of C, even if tiles are padded.
    const std::int64_t m = 19, n = 21, k = 35;
    for (const float x : {inf, -inf, nan})
      for (const bool in_a : {true, false}) {
        std::vector<float> left(static_cast<std::size_t>(m * k), 1.0F);
        std::vector<float> right(static_cast<std::size_t>(k * n), 1.0F);
        (in_a ? left : right).back() = x;
        const Stored<bf16> a(left, m, k, 0), b(right, k, n, 1);
        const Stored<bf16> c(std::vector<float>(static_cast<std::size_t>(m * n)), m, n, 0);
        cpu::matmul<bf16>(a.matrix, b.matrix, c.matrix);
        bool right_everywhere = true;
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t j = 0; j < n; ++j) {
            const auto got = static_cast<float>(c.matrix(i, j));
            const bool reached = in_a ? i == m - 1 : j == n - 1;
            right_everywhere &= !reached        ? got == static_cast<float>(k)
                                : std::isnan(x) ? std::isnan(got)
                                                : got == x;
          }
        INFO(x << (in_a ? " in a" : " in b"));
        CHECK(right_everywhere);
      }
    for (const auto& [x, y] : {std::pair{inf, 0.0F}, std::pair{0.0F, -inf}}) {  // 1 + inf * 0
      const Stored<bf16> a({1, x}, 1, 2, 0), b({1, y}, 2, 1, 0), c({0}, 1, 1, 0);
      cpu::matmul<bf16>(a.matrix, b.matrix, c.matrix);
      CHECK(std::isnan(c.wide()[0]));
    }
    {
      const Stored<bf16> a({inf, 1, inf}, 1, 3, 0), b({1, 1, -1}, 3, 1, 0), c({0}, 1, 1, 0);
      cpu::matmul<bf16>(a.matrix, b.matrix, c.matrix);  // inf - inf, from different pairs
      CHECK(std::isnan(c.wide()[0]));
    }

    const Stored<bf16> left(random_values(300 * 70, 1), 300, 70, 0);
    const Stored<bf16> right(random_values(70 * 270, 2), 70, 270, 1);
    const Stored<bf16> one(random_values(300 * 270, 3), 300, 270, 0);
    const Stored<bf16> three(random_values(300 * 270, 3), 300, 270, 0);
    cpu::matmul<bf16>(left.matrix, right.matrix, one.matrix);
    set_threads(3);
    cpu::matmul<bf16>(left.matrix, right.matrix, three.matrix);
    set_threads(1);
    CHECK(one.wide() == three.wide());

    // The instructions treat operands below 2^-126 as zero, and flush such sums to zero.
    const bool floats = products == Bf16Products::widened;
    const Stored<bf16> tiny({0x1p-130F, 0x1p-100F}, 2, 1, 0), scales({0x1p100F, 0x1p-30F}, 1, 2, 0);
    const Stored<bf16> out({0, 0, 0, 0}, 2, 2, 0);
    cpu::matmul<bf16>(tiny.matrix, scales.matrix, out.matrix);
    CHECK(out.wide() ==
          std::vector<float>{floats ? 0x1p-30F : 0.0F, 0.0F, 1.0F, floats ? 0x1p-130F : 0.0F});
  }
}

TEST_CASE("bf16 products are chosen by name, and refused where the processor has none") {
  CHECK(bf16_products() == bf16_products_here().back());
  CHECK(parse_bf16_products("auto") == bf16_products());
  for (const Bf16Products p :
       {Bf16Products::widened, Bf16Products::avx512_bf16, Bf16Products::amx_bf16}) {
    CHECK(parse_bf16_products(name_of(p)) == p);
    const auto here = bf16_products_here();
    if (std::find(here.begin(), here.end(), p) == here.end())
      CHECK_THROWS_WITH(set_bf16_products(p), ContainsSubstring(std::string(name_of(p))) &&
                                                  ContainsSubstring("use auto or widened"));
  }
  CHECK_THROWS_WITH(parse_bf16_products("vnni"), ContainsSubstring("use auto, widened"));
}

// tests/bf16 runs these cases to check that its emulated processors have the instructions.
TEST_CASE("this processor multiplies bf16 by AVX-512-BF16", "[.avx512_bf16]") {
  CHECK(name_of(bf16_products()) == "avx512_bf16");
}
TEST_CASE("this processor multiplies bf16 by AMX", "[.amx_bf16]") {
  CHECK(name_of(bf16_products()) == "amx_bf16");
  CHECK(bf16_products_here().size() == 3);
}

TEST_CASE("a 16-bit linear adds its bias before it rounds") {
  const Bf16Scope on_any_processor(Bf16Products::widened);
  const std::int64_t m = 9, n = 300, k = 270;
  const Stored<bf16> x(random_values(m * k, 1), m, k, 0), w(random_values(n * k, 2), n, k, 0);
  const Stored<bf16> y(random_values(m * n, 3), m, n, 0), bias(random_values(n, 4), 1, n, 0);
  std::vector<float> want(static_cast<std::size_t>(m * n));
  const std::vector<float> wx = x.wide(), ww = w.wide(), wb = bias.wide();
  cpu::linear<float>(row_major(wx.data(), m, k), row_major(ww.data(), n, k), wb,
                     row_major(want.data(), m, n));
  cpu::linear<bf16>(x.matrix, w.matrix,
                    std::span<const bf16>(bias.matrix.data, static_cast<std::size_t>(n)), y.matrix);
  CHECK(y.wide() == rounded<bf16>(want));
}

TEST_CASE("bf16 linear, by everything that this processor has for it") {
  const std::int64_t m = 9, n = 70, k = 270;
  const Stored<bf16> x(random_values(m * k, 1), m, k, 0), w(random_values(n * k, 2), n, k, 0);
  const Stored<bf16> y(random_values(m * n, 3), m, n, 0), bias(random_values(n, 4), 1, n, 0);
  std::vector<float> begin;
  for (std::int64_t i = 0; i < m; ++i)
    for (const float v : bias.wide()) begin.push_back(v);
  std::vector<float> transposed;
  for (std::int64_t p = 0; p < k; ++p)
    for (std::int64_t j = 0; j < n; ++j) transposed.push_back(static_cast<float>(w.matrix(j, p)));
  const Exact exact(x.wide(), transposed, begin, m, n, k);
  for (const Bf16Products products : bf16_products_here()) {
    const Bf16Scope scope(products);
    INFO(name_of(products));
    cpu::linear<bf16>(x.matrix, w.matrix,
                      std::span<const bf16>(bias.matrix.data, static_cast<std::size_t>(n)),
                      y.matrix);
    CHECK(exact.allows(y.wide()));
  }
}

TEST_CASE(
    "16-bit products: no terms are zeros, NaN and infinity come through, threads change nothing") {
  std::vector<bf16> none, some(6, bf16(3.0F));
  cpu::matmul<bf16>({none.data(), 2, 0, 0, 1}, {none.data(), 0, 3, 3, 1},
                    row_major(some.data(), 2, 3));
  for (const bf16 x : some) CHECK(static_cast<float>(x) == 0.0F);

  const float inf = std::numeric_limits<float>::infinity();
  const Stored<bf16> a({1, inf, 1, std::nanf("")}, 2, 2, 0), b({1, 1, 1, 1}, 2, 2, 0);
  const Stored<bf16> c({0, 0, 0, 0}, 2, 2, 0);
  cpu::matmul<bf16>(a.matrix, b.matrix, c.matrix);
  CHECK(c.wide()[0] == inf);
  CHECK(std::isnan(c.wide()[2]));

  const Stored<bf16> left(random_values(400 * 300, 1), 400, 300, 0);
  const Stored<bf16> right(random_values(300 * 520, 2), 300, 520, 1);
  const Stored<bf16> one(random_values(400 * 520, 3), 400, 520, 0);
  const Stored<bf16> three(random_values(400 * 520, 3), 400, 520, 0);
  cpu::matmul<bf16>(left.matrix, right.matrix, one.matrix);
  set_threads(3);
  cpu::matmul<bf16>(left.matrix, right.matrix, three.matrix);
  set_threads(1);
  CHECK(one.wide() == three.wide());
}
