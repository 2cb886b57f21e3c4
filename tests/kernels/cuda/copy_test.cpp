// Copies and fills must equal the CPU's bit for bit.
#include "kernels/copy.hpp"

#include <cmath>

#include "kernels/dropout.hpp"
#include "kernels/embedding.hpp"
#include "runtime/base/dtype.hpp"
#include "tests/kernels/cuda/support.hpp"
#include "tests/kernels/cuda/views.hpp"
#ifdef RINGSMITH_VGPU
#include "kernels/vgpu/counters.hpp"
#endif

using namespace ringsmith;
using namespace ringsmith::testing;
using namespace ringsmith::kernels;

namespace {

// Returns whole numbers, and fractions that only the wider types can represent. All fit into every
// integer type, because the conversion of larger values is unspecified.
template <class T>
std::vector<T> values(std::int64_t n) {
  std::vector<T> v;
  for (std::int64_t i = 0; i < n; ++i)
    v.push_back(convert<T>(static_cast<double>(i * 37 % 120) + 0.37 * static_cast<double>(i % 3)));
  return v;
}

// std::vector<bool> has no addressable elements, so bool is stored as a byte.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;
template <class T, class S>
View<T> as(View<S> v) {
  return {reinterpret_cast<T*>(v.data), v.layout};
}

template <class D, class S>
void compare(const Sizes& shape) {
  const auto n = numel_of(shape);
  std::vector<Stored<S>> from = values<Stored<S>>(n);
  if constexpr (std::is_same_v<S, bool>)
    for (auto& v : from) v = v % 2;
  const std::vector<Stored<D>> blank(static_cast<std::size_t>(n), Stored<D>(1));
  for (const Arrangement& in : arrangements(shape))
    for (const Arrangement& out : arrangements(shape)) {
      INFO(name_of(dtype_of<S>()) << " " << in.name << " to " << name_of(dtype_of<D>()) << " "
                                  << out.name << ", " << n << " elements");
      const Arranged<Stored<S>> x(in, from);
      const Arranged<Stored<D>> y(out, blank);
      cuda::copy<D, S>(as<D>(y.device()), as<const S>(x.device()));
      cpu::copy<D, S>(as<D>(y.host()), as<const S>(x.host()));
      const auto got = y.device_values(), want = y.host_values();
      REQUIRE(got.size() == want.size());
      REQUIRE((got.empty() || std::memcmp(got.data(), want.data(), got.size() * sizeof(D)) == 0));
    }
}

template <class D>
void compare_from_all(const Sizes& shape) {
  compare<D, float>(shape);
  compare<D, f16>(shape);
  compare<D, bf16>(shape);
  compare<D, double>(shape);
  compare<D, std::int32_t>(shape);
  compare<D, std::int64_t>(shape);
  compare<D, std::uint8_t>(shape);
  compare<D, bool>(shape);
}

}  // namespace

TEMPLATE_TEST_CASE("a device converts every dtype as the CPU does", "[cuda]", float, f16, bf16,
                   double, std::int32_t, std::int64_t, std::uint8_t, bool) {
  for (const Sizes& shape : std::vector<Sizes>{{1}, {63}, {5, 8}})
    compare_from_all<TestType>(shape);
}

TEMPLATE_TEST_CASE("a device copies every layout, tiles and all", "[cuda]", float, f16, double,
                   std::uint8_t) {
  for (const Sizes& shape : std::vector<Sizes>{
           {0}, {1000}, {40, 33}, {8, 8}, {64, 64}, {7, 70}, {3, 40, 33}, {9, 4, 10}, {2, 0, 3}})
    compare<TestType, TestType>(shape);
}

TEMPLATE_TEST_CASE("every 16-bit float converts on a device as on the CPU, and back", "[cuda]", f16,
                   bf16) {
  std::vector<TestType> all(1 << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  const OnDevice<TestType> x(all), back(all.size());
  const OnDevice<float> wide(all.size());
  const Layout flat = contiguous_layout({1 << 16});
  cuda::copy<float, TestType>({wide.data(), flat}, {x.data(), flat});
  cuda::copy<TestType, float>({back.data(), flat}, {wide.data(), flat});
  std::vector<float> want;
  for (const TestType v : all) want.push_back(static_cast<float>(v));
  CHECK(same_bits(wide.host(), want));
  const auto got = back.host();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!std::isnan(want[i])) REQUIRE(got[i].bits == all[i].bits);
}

TEST_CASE("fill on a device: zeros, values, gaps left alone", "[cuda]") {
  for (const Sizes& shape : std::vector<Sizes>{{0}, {1}, {1000}, {5, 8}, {2, 3, 4}})
    for (const Arrangement& arrangement : arrangements(shape))
      for (const float value : {0.0F, -0.0F, 2.5F}) {
        const Arranged<float> x(arrangement,
                                std::vector<float>(static_cast<std::size_t>(numel_of(shape)), 9));
        cuda::fill<float>(x.device(), value);
        cpu::fill<float>(x.host(), value);
        REQUIRE(same_bits(x.device_values(), x.host_values()));
      }
}

TEST_CASE("a dropout mask has the same bits on a device as on the CPU", "[cuda]") {
  for (const std::size_t n : {0, 1, 3, 4, 5, 1000, 70'001})
    for (const double keep : {0.0, 0.1, 0.9, 1.0}) {
      const OnDevice<std::uint8_t> mask(n);
      const PhiloxState state{.seed = 1234567890123ULL, .offset = (1ULL << 33) + 7};
      cuda::dropout_mask({reinterpret_cast<bool*>(mask.data()), n}, keep, state);
      std::vector<std::uint8_t> want(n);
      cpu::dropout_mask({reinterpret_cast<bool*>(want.data()), n}, keep, state);
      CHECK(mask.host() == want);
    }
}

TEMPLATE_TEST_CASE("embedding on a device has the CPU's bits, however often a row is used",
                   "[cuda]", float, double) {
  for (const std::int64_t dim : {1, 4, 7, 64})
    // A warp places the digits of 4 x 256 indices per lane, 128 x 256 in all, and then continues.
    for (const std::int64_t n : {0, 1, 40, 64, 65, 129, 700, 4 * 256, 4 * 256 + 1, 17 * 256 + 1,
                                 128 * 256, 128 * 256 + 1, 2 * 128 * 256 + 300})
      for (const std::int64_t rows : {1, 3, 1000, 70'001}) {
        if (rows * dim > 300'000 || (n > 700 && dim != 4)) continue;
        if (n > 5000 && rows != 1000) continue;
        auto w = random_values(rows * dim, 1), g = random_values(n * dim, 2);
        // With more than 64 indices, the device and the CPU add in different orders, so use numbers
        // whose sum is exact in any order.
        if (n > 64)
          for (auto* values : {&w, &g})
            for (float& x : *values) x = std::round(x * 64);
        const std::vector<TestType> weight(w.begin(), w.end()), dy(g.begin(), g.end());
        std::vector<std::int64_t> index;
        for (std::int64_t i = 0; i < n; ++i) index.push_back(i * i % 17 * 13'577 % rows);
        const OnDevice<TestType> weight_(weight), out(dy.size()), dy_(dy), dweight(weight, 1);
        const OnDevice<std::int64_t> index_(index);
        std::vector<TestType> want(dy.size()), want_dweight(weight);
        cuda::check_indices("test", index_.view(), rows);
        cuda::embedding<TestType>(weight_.view(), dim, index_.view(), out.span());
        cpu::embedding<TestType>(weight, dim, index, want);
        CHECK(out.host() == want);
        cuda::embedding_backward<TestType>(dy_.view(), dim, index_.view(), dweight.span());
        cpu::embedding_backward<TestType>(dy, dim, index, want_dweight);
        CHECK(dweight.host() == want_dweight);
      }
}

#ifdef RINGSMITH_VGPU
TEST_CASE(
    "no kernel of the embedding, forward or backward, has one block if there are many indices",
    "[cuda]") {
  const std::int64_t n = 16'384, dim = 64, rows = 1000;
  std::vector<std::int64_t> index;
  for (std::int64_t i = 0; i < n; ++i) index.push_back(i * 7 % rows);
  const OnDevice<std::int64_t> index_(index);
  const OnDevice<float> weight(std::vector<float>(rows * dim, 1.0F)), rows_(n * dim);
  synchronize(current_device());
  (void)vgpu::take_counts();
  cuda::check_indices("embedding", index_.view(), rows);
  cuda::embedding<float>(weight.view(), dim, index_.view(), rows_.span());
  cuda::embedding_backward<float>(rows_.view(), dim, index_.view(), weight.span());
  synchronize(current_device());
  std::uint64_t launches = 0;
  for (const vgpu::Count& c : vgpu::take_counts()) {
    INFO(c.name);
    CHECK(c.blocks >= 8);
    launches += c.runs;
  }
  // The check; gather; uses, two digits of three kernels, and two sums.
  CHECK(launches == 1 + 1 + 1 + 2 * 3 + 2);
}
#endif

TEST_CASE("one row that is used 30,000 times: its sum has pieces, and the same ones in each run",
          "[cuda]") {
  const std::int64_t n = 30'000, dim = 3, rows = 5;
  std::vector<std::int64_t> index;
  for (std::int64_t i = 0; i < n; ++i) index.push_back(i % 1000 == 7 ? 4 : 2);
  const std::vector<float> dy(static_cast<std::size_t>(n * dim), 0.1F);
  const OnDevice<std::int64_t> index_(index);
  const OnDevice<float> dy_(dy);
  const auto backward = [&] {
    const OnDevice<float> sums(std::vector<float>(static_cast<std::size_t>(rows * dim), 0.0F));
    cuda::embedding_backward<float>(dy_.view(), dim, index_.view(), sums.span());
    return sums.host();
  };
  const std::vector<float> sums = backward();
  // A serial sum of floats is off by 1e-4 here.
  const auto off = [](float sum, double terms) { return std::abs(sum / (terms * 0.1F) - 1); };
  for (std::size_t c = 0; c < 3; ++c) {
    CHECK(off(sums[2 * 3 + c], 29'970) < 1e-5);
    CHECK(off(sums[4 * 3 + c], 30) < 1e-6);
    CHECK(sums[c] == 0.0F);
  }
  for (int run = 0; run < 3; ++run) CHECK(same_bits(backward(), sums));
}

TEST_CASE("an index outside the table: NaN from a device, and no gradient", "[cuda]") {
  const std::vector<std::int64_t> index{1, -1, 0, 2, 5'000'000'000, 1};
  const OnDevice<std::int64_t> index_(index);
  for (const std::int64_t dim : {4, 3}) {
    const auto weight = random_values(2 * dim, 1);
    // Values so large that adding dy to an element of a guard would change the guard's pattern.
    const std::vector<float> dy(static_cast<std::size_t>(6 * dim), 1e35F);
    const OnDevice<float> weight_(weight), out(dy.size()), dy_(dy),
        sums(std::vector<float>(weight.size(), 0.0F));
    cuda::embedding<float>(weight_.view(), dim, index_.view(), out.span());
    const auto rows = out.host();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::int64_t row = index[i / static_cast<std::size_t>(dim)];
      if (row == 0 || row == 1)
        CHECK(rows[i] ==
              weight[static_cast<std::size_t>(row * dim) + i % static_cast<std::size_t>(dim)]);
      else
        CHECK(std::isnan(rows[i]));
    }
    cuda::embedding_backward<float>(dy_.view(), dim, index_.view(), sums.span());
    const auto got = sums.host();
    for (std::size_t i = 0; i < got.size(); ++i)
      CHECK(got[i] == (i < static_cast<std::size_t>(dim) ? 1e35F : 2e35F));
  }
}

TEST_CASE("an index outside the table is the same error on a device as on the CPU", "[cuda]") {
  std::vector<std::int64_t> index(5000, 3);
  index[4321] = 10;
  index[4900] = -1;
  const OnDevice<std::int64_t> index_(index);
  const std::string want = "embedding: index 10 at position 4321 is outside [0, 10)";
  cuda::check_indices("embedding", index_.view(), 10);
  CHECK_THROWS_WITH(synchronize(current_device()), want);
  CHECK_NOTHROW(synchronize(current_device()));  // the error is reported once
  CHECK_THROWS_WITH(cpu::check_indices("embedding", index, 10), want);
}

TEST_CASE("of many bad indices, in any thread and block of the check, the first is reported",
          "[cuda]") {
  // The check has at most 32 blocks of 256 threads. Beyond 8192 indices a thread has several.
  for (const std::int64_t n : {1, 255, 256, 257, 8191, 8192, 8193, 20'000})
    for (const std::int64_t first : {std::int64_t{0}, n / 3, n - 1}) {
      std::vector<std::int64_t> index(static_cast<std::size_t>(n), 3);
      // Each bad index has another value, so that a value of another position is noticed.
      for (std::int64_t i = first; i < n; i += 1 + (i - first) / 7)
        index[static_cast<std::size_t>(i)] = 10 + i;
      const OnDevice<std::int64_t> index_(index);
      cuda::check_indices("embedding", index_.view(), 10);
      CHECK_THROWS_WITH(synchronize(current_device()),
                        "embedding: index " + std::to_string(10 + first) + " at position " +
                            std::to_string(first) + " is outside [0, 10)");
    }
}
