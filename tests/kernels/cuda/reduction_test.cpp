// Tests sums and maxima on a device.
#include "kernels/reduction.hpp"

#include <cmath>
#include <limits>

#include "tests/kernels/cuda/support.hpp"
#include "tests/kernels/cuda/views.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;
using namespace ringsmith::kernels;

namespace {

// Returns the layout that the kernel needs for a sum's result. Bit d of `reduced`: the sum is over
// dimension d.
Layout result_layout(const Sizes& shape, unsigned reduced) {
  Sizes kept = shape;
  for (std::size_t d = 0; d < kept.size(); ++d)
    if ((reduced >> d & 1U) != 0) kept[d] = 1;
  Layout layout = contiguous_layout(kept);
  for (std::size_t d = 0; d < kept.size(); ++d) {
    layout.sizes[d] = shape[d];
    if ((reduced >> d & 1U) != 0) layout.strides[d] = 0;
  }
  return layout;
}
std::size_t results_of(const Sizes& shape, unsigned reduced) {
  std::int64_t n = 1;
  for (std::size_t d = 0; d < shape.size(); ++d) n *= (reduced >> d & 1U) != 0 ? 1 : shape[d];
  return static_cast<std::size_t>(n);
}

}  // namespace

TEST_CASE("sums on a device over any dimensions agree with float64", "[cuda][reduction]") {
  const std::vector<Sizes> shapes{{1},        {31},         {32},        {100'003}, {3, 5},
                                  {64, 32},   {300, 100},   {1, 40},     {40, 1},   {4, 3, 5},
                                  {2, 9, 33}, {3, 2, 4, 5}, {2, 700, 6}, {3, 0, 2}};
  for (const Sizes& shape : shapes) {
    auto values = random_values(numel_of(shape), 7);
    for (float& v : values) v += 3;
    const auto wide = widen(values);
    for (const Arrangement& arrangement : arrangements(shape)) {
      const Arranged<float> x(arrangement, values);
      for (unsigned reduced = 0; reduced < 1U << shape.size(); ++reduced) {
        const std::size_t n = results_of(shape, reduced);
        const OnDevice<float> out(n);
        const Layout layout = result_layout(shape, reduced);
        std::vector<double> want(n);
        cpu::sum<double>({want.data(), layout}, {wide.data(), contiguous_layout(shape)});
        cuda::sum<float>({out.data(), layout}, x.device());
        REQUIRE(distance(out.host(), narrow(want)) <= 1e-6);
      }
    }
  }
}

TEST_CASE("sums of ones on a device are exact around every chunk of the fold",
          "[cuda][reduction]") {
  std::vector<std::int64_t> lengths{0, 1, 3, 4, 31, 1023, 1024, 1025};
  for (const std::int64_t chunk : {256, 16384})  // kColumnChunk, kRowChunk
    for (const std::int64_t n : {chunk - 1, chunk, chunk + 1, 2 * chunk, 3 * chunk + 5})
      lengths.push_back(n);
  for (const std::int64_t n : lengths)
    for (const std::int64_t columns : {1, 3, 40}) {
      const OnDevice<float> x(std::vector<float>(static_cast<std::size_t>(n * columns), 1.0F));
      for (const bool down : {true, false}) {  // columns of (n, columns), rows of (columns, n)
        const Sizes shape = down ? Sizes{n, columns} : Sizes{columns, n};
        const OnDevice<float> out(static_cast<std::size_t>(columns));
        cuda::sum<float>({out.data(), result_layout(shape, down ? 1 : 2)},
                         {x.data(), contiguous_layout(shape)});
        REQUIRE(out.host() ==
                std::vector<float>(static_cast<std::size_t>(columns), static_cast<float>(n)));
      }
    }
}

TEST_CASE("a sum on a device has the same bits in every run, NaN and inf come through",
          "[cuda][reduction]") {
  const auto values = random_values(200'000, 3);
  const OnDevice<float> x(values), a(1), b(1);
  const Layout flat = contiguous_layout({200'000}), one = result_layout({200'000}, 1);
  cuda::sum<float>({a.data(), one}, {x.data(), flat});
  cuda::sum<float>({b.data(), one}, {x.data(), flat});
  CHECK(a.host() == b.host());
  auto bad = values;
  bad[123'456] = std::numeric_limits<float>::quiet_NaN();
  const OnDevice<float> y(bad);
  cuda::sum<float>({a.data(), one}, {y.data(), flat});
  CHECK(std::isnan(a.host()[0]));
}

TEST_CASE("maxima on a device: the first of equals, NaN above all, as on the CPU",
          "[cuda][reduction]") {
  const std::vector<Sizes> shapes{{1},      {7},      {1000},    {40'000},   {3, 5},
                                  {70, 33}, {5, 300}, {4, 3, 5}, {2, 70, 3}, {3, 1, 40}};
  for (const Sizes& shape : shapes)
    for (const bool with_nan : {false, true}) {
      auto values = random_values(numel_of(shape), 11);
      for (float& v : values) v = std::round(v * 2);  // produces many ties
      if (with_nan)
        for (std::size_t i = 3; i < values.size(); i += 7)
          values[i] = std::numeric_limits<float>::quiet_NaN();
      for (const Arrangement& arrangement : arrangements(shape)) {
        const Arranged<float> x(arrangement, values);
        for (std::size_t d = 0; d < shape.size(); ++d) {
          const unsigned bit = 1U << d;
          const std::size_t n = results_of(shape, bit);
          Layout layout = result_layout(shape, bit), from = arrangement.layout;
          layout.sizes[d] = from.sizes[d] = 1;
          const Reduced dim{shape[d], arrangement.layout.strides[d]};
          const OnDevice<float> top(n), g(random_values(static_cast<std::int64_t>(n), 5));
          const OnDevice<std::int64_t> index(n);
          std::vector<float> want(n);
          std::vector<std::int64_t> want_index(n);
          cuda::max<float>({top.data(), layout}, {index.data(), layout}, {x.device().data, from},
                           dim);
          cpu::max<float>({want.data(), layout}, {want_index.data(), layout}, {x.host().data, from},
                          dim);
          REQUIRE(same_bits(top.host(), want));
          REQUIRE(index.host() == want_index);
          const Arranged<float> grad(arrangement, values);
          const auto g_host = g.host();
          cuda::max_backward<float>({grad.device().data, from}, {index.data(), layout},
                                    {g.data(), layout}, dim);
          cpu::max_backward<float>({grad.host().data, from}, {want_index.data(), layout},
                                   {g_host.data(), layout}, dim);
          REQUIRE(same_bits(grad.device_values(), grad.host_values()));
        }
      }
    }
}

TEST_CASE("the gradient of a maximum over everything is shared by all that reach it",
          "[cuda][reduction]") {
  for (const float top : {2.0F, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x(50'000, 1.0F);
    x[7] = x[40'000] = x[40'001] = x[49'999] = top;
    const OnDevice<float> x_(x), maximum(std::vector<float>{top}), g(std::vector<float>{3.0F}),
        grad(x.size());
    cuda::max_all_backward<float>(grad.span(), x_.view(), maximum.view(), g.view());
    std::vector<float> want(x.size());
    want[7] = want[40'000] = want[40'001] = want[49'999] = 0.75F;
    CHECK(grad.host() == want);
  }
}
