// Kernels that read and write f16 and bf16 directly have the bits of three kernels: widen the
// operands, compute in float, round the result. The same holds for layer norm between types, and
// for casts of many tensors in one launch.
#include <cmath>
#include <deque>
#include <limits>

#include "kernels/copy.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/layernorm.hpp"
#include "kernels/matmul.hpp"
#include "kernels/reduction.hpp"
#include "tests/kernels/cuda/support.hpp"
#include "tests/kernels/cuda/views.hpp"
#ifdef RINGSMITH_VGPU
#include "kernels/vgpu/counters.hpp"
#endif

using namespace ringsmith;
using namespace ringsmith::testing;
using namespace ringsmith::kernels;

namespace {

const std::vector<Sizes> kShapes{{0},    {1},      {7},       {8},      {1027},       {40'001},
                                 {3, 5}, {16, 24}, {4, 3, 8}, {17, 64}, {2, 3, 4, 8}, {2, 0, 3}};

template <class H>
std::vector<H> rounded(const std::vector<float>& values) {
  std::vector<H> out;
  for (const float v : values) out.push_back(H(v));
  return out;
}
template <class H>
std::vector<float> floats(const std::vector<H>& values) {
  std::vector<float> out;
  for (const H v : values) out.push_back(static_cast<float>(v));
  return out;
}

// Returns random values with infinities, NaN, both zeros, subnormal numbers, and halves of an ulp.
template <class H>
std::vector<H> hard_values(std::int64_t n, unsigned seed) {
  std::vector<float> x = random_values(n, seed, 2);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float specials[] = {0.0F,  -0.0F,   kInfinity, -kInfinity, std::nanf(""),
                            1e-7F, -3e-39F, 65504.0F,  1.0F,       1.00390625F};
  for (std::size_t i = 0; i < x.size(); i += 3) x[i] = specials[i / 3 % 10];
  return rounded<H>(x);
}

// True if all elements have equal bits or are NaN on both sides.
template <class H>
bool agrees(const std::vector<H>& got, const std::vector<float>& want) {
  if (got.size() != want.size()) return false;
  for (std::size_t i = 0; i < got.size(); ++i)
    if (got[i].bits != H(want[i]).bits &&
        !(std::isnan(static_cast<float>(got[i])) && std::isnan(want[i])))
      return false;
  return true;
}

template <class H>
void check_elementwise(const Sizes& shape) {
  const std::vector<H> a = hard_values<H>(numel_of(shape), 1),
                       b = hard_values<H>(numel_of(shape), 2);
  for (const Arrangement& arrangement : arrangements(shape)) {
    INFO(arrangement.name << " of " << numel_of(shape));
    const Arranged<H> x(arrangement, a), y(arrangement, b), out(arrangement, a);
    const Arranged<float> wide_x(arrangement, floats(a)), wide_y(arrangement, floats(b)),
        wide_out(arrangement, floats(a));
    const auto compare = [&](const auto& run) {
      run.template operator()<H>(out.device(), x.device(), y.device());
      run.template operator()<float>(wide_out.device(), wide_x.device(), wide_y.device());
      REQUIRE(agrees(out.device_values(), wide_out.device_values()));
    };
    for (int op = 0; op <= static_cast<int>(Unary::gelu_tanh); ++op)
      compare([=]<class T>(View<T> o, View<T> v, View<T>) {
        cuda::unary<T>(static_cast<Unary>(op), o, v);
      });
    for (int op = 0; op <= static_cast<int>(Binary::gelu_tanh_backward); ++op)
      compare([=]<class T>(View<T> o, View<T> v, View<T> w) {
        cuda::binary<T>(static_cast<Binary>(op), o, v, w);
      });
    for (int op = 0; op <= static_cast<int>(Scalar::pow_backward); ++op)
      for (const float s : {0.0F, 1.0F, 2.0F, -1.0F, 1.7F, 0.1F})  // 0.1 has no 16-bit value
        compare([=]<class T>(View<T> o, View<T> v, View<T>) {
          cuda::scalar<T>(static_cast<Scalar>(op), o, v, s);
        });
    // The sum of a float and a 16-bit operand is a float.
    cuda::add_widened<H>(wide_out.device(), wide_x.device(), y.device());
    const std::vector<float> got = wide_out.device_values();
    cuda::binary<float>(Binary::add, wide_out.device(), wide_x.device(), wide_y.device());
    REQUIRE(same_bits(got, wide_out.device_values()));
  }
}

}  // namespace

TEMPLATE_TEST_CASE("16-bit element-wise kernels on a device: the bits of float, rounded once",
                   "[cuda][half]", bf16, f16) {
  for (const Sizes& shape : kShapes) check_elementwise<TestType>(shape);
}

TEMPLATE_TEST_CASE("16-bit masks on a device", "[cuda][half]", bf16, f16) {
  for (const std::int64_t n : {1, 7, 64, 4099})
    for (const std::size_t offset : {0, 1}) {
      const auto x = hard_values<TestType>(n, 3);
      std::vector<std::uint8_t> keep;
      for (std::int64_t i = 0; i < n; ++i) keep.push_back(i % 3 == 1);
      const OnDevice<TestType> x_(x, offset), filled(x.size(), offset), scaled(x.size(), offset);
      const OnDevice<std::uint8_t> mask(keep);
      const Layout flat = contiguous_layout({n});
      const View<const bool> m{reinterpret_cast<const bool*>(mask.data()), flat};
      cuda::masked_fill<TestType>({filled.data(), flat}, {x_.data(), flat}, m, 0.1F);
      cuda::masked_scale<TestType>({scaled.data(), flat}, {x_.data(), flat}, m, 1.1F);
      std::vector<float> want_filled, want_scaled;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto v = static_cast<float>(x[i]);
        want_filled.push_back(keep[i] != 0 ? 0.1F : v);
        want_scaled.push_back(v * (keep[i] != 0 ? 1.1F : 0.0F));
      }
      CHECK(agrees(filled.host(), want_filled));
      CHECK(agrees(scaled.host(), want_scaled));
    }
}

TEMPLATE_TEST_CASE("16-bit sums on a device are float sums, rounded once", "[cuda][half]", bf16,
                   f16) {
  for (const auto& [rows, columns] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 3}, {1, 1}, {5, 7}, {300, 33}, {64, 96}, {1000, 8}, {3, 20'000}})
    for (const std::size_t offset : {0, 4}) {  // 4: packs of four 16-bit elements fit
      INFO(rows << " x " << columns << ", offset " << offset);
      std::vector<float> values = random_values(rows * columns, 7);
      for (float& v : values) v += 3;
      const auto x = rounded<TestType>(values);
      const std::vector<float> wide = floats(x);
      const OnDevice<TestType> x_(x, offset);
      const OnDevice<float> wide_(wide, offset);
      const Matrix<const TestType> matrix = row_major<const TestType>(x_.data(), rows, columns);
      const Matrix<const float> wide_matrix = row_major<const float>(wide_.data(), rows, columns);
      const auto n = static_cast<std::size_t>(columns);
      const OnDevice<TestType> sums(n);
      const OnDevice<float> wide_sums(n);
      cuda::column_sum<TestType>(matrix, sums.span(), Store::replace);
      cuda::column_sum<float>(wide_matrix, wide_sums.span(), Store::replace);
      CHECK(agrees(sums.host(), wide_sums.host()));
      // The sum must be rounded only once: its error against double is at most half an ulp.
      const std::vector<TestType> got = sums.host();
      for (std::size_t c = 0; c < n; ++c) {
        double want = 0;
        for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r)
          want += double{wide[r * n + c]};
        const double ulp = std::is_same_v<TestType, bf16> ? 0x1p-8 : 0x1p-11;
        CHECK(std::abs(double{static_cast<float>(got[c])} - want) <= (ulp + 1e-5) * std::abs(want));
      }
      Layout to = contiguous_layout({rows, columns}), all = to;
      to.strides[0] = 0, to.strides[1] = 1;
      all.strides[0] = all.strides[1] = 0;
      const OnDevice<TestType> one(1);
      const OnDevice<float> wide_one(1);
      cuda::sum<TestType>({one.data(), all}, {x_.data(), contiguous_layout({rows, columns})});
      cuda::sum<float>({wide_one.data(), all}, {wide_.data(), contiguous_layout({rows, columns})});
      CHECK(agrees(one.host(), wide_one.host()));
      cuda::sum<TestType>({sums.data(), to}, {x_.data(), contiguous_layout({rows, columns})});
      CHECK(agrees(sums.host(), wide_sums.host()));
    }
}

TEMPLATE_TEST_CASE("16-bit layer norm on a device: the bits of float between conversions",
                   "[cuda][half]", bf16, f16) {
  using H = TestType;
  for (const auto& [rows, n] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 4}, {1, 1}, {7, 3}, {130, 64}, {37, 768}, {5, 1025}, {2, 4095}, {3, 5000}})
    for (const std::size_t offset : {0, 1}) {
      INFO(rows << " x " << n << ", offset " << offset);
      const auto count = static_cast<std::size_t>(rows * n), r = static_cast<std::size_t>(rows),
                 c = static_cast<std::size_t>(n);
      const auto x = rounded<H>(random_values(rows * n, 1, 2));
      const auto dy = rounded<H>(random_values(rows * n, 2)), w = rounded<H>(random_values(n, 3)),
                 b = rounded<H>(random_values(n, 4));
      const std::vector<float> dsum = random_values(rows * n, 5);
      const OnDevice<H> x_(x, offset), dy_(dy, offset), w_(w, 1), b_(b, 1), y(count, offset),
          dx(count, offset), dw(c), db(c);
      const OnDevice<float> fx(floats(x), offset), fdy(floats(dy), offset), fw(floats(w), 1),
          fb(floats(b), 1), fdsum(dsum, offset), fy(count, offset), fdx(count, offset), fdw(c),
          fdb(c), mean(r), rstd(r), fmean(r), frstd(r), sum(count, offset), fsum(count, offset),
          got_dw(c), got_db(c), got_dx(count, offset);

      // All operands have 16 bits.
      cuda::layer_norm<float>(fx.view(), fw.view(), fb.view(), 1e-5, fy.span(), fmean.span(),
                              frstd.span());
      cuda::layer_norm_backward<float>(fdy.view(), fx.view(), fw.view(), fmean.view(), frstd.view(),
                                       fdx.span(), fdw.span(), fdb.span());
      cuda::layer_norm<H>(x_.view(), w_.view(), b_.view(), 1e-5, y.span(), mean.span(),
                          rstd.span());
      cuda::layer_norm_backward<H>(dy_.view(), x_.view(), w_.view(), mean.view(), rstd.view(),
                                   dx.span(), dw.span(), db.span());
      CHECK(agrees(y.host(), fy.host()));
      CHECK(same_bits(mean.host(), fmean.host()));
      CHECK(same_bits(rstd.host(), frstd.host()));
      CHECK(agrees(dx.host(), fdx.host()));
      CHECK(agrees(dw.host(), fdw.host()));
      CHECK(agrees(db.host(), fdb.host()));

      // As under autocast, only y and its gradient have 16 bits.
      cuda::layer_norm_lowered<H>(fx.view(), fw.view(), fb.view(), 1e-5, y.span(), mean.span(),
                                  rstd.span());
      cuda::layer_norm_lowered_backward<H>(dy_.view(), fx.view(), fw.view(), mean.view(),
                                           rstd.view(), got_dx.span(), got_dw.span(),
                                           got_db.span());
      CHECK(agrees(y.host(), fy.host()));
      CHECK(same_bits(got_dx.host(), fdx.host()));
      CHECK(same_bits(got_dw.host(), fdw.host()));
      CHECK(same_bits(got_db.host(), fdb.host()));

      // The residual has 16 bits, too.
      cuda::add_layer_norm<float>(fx.view(), fdy.view(), fw.view(), fb.view(), 1e-5, fsum.span(),
                                  fy.span(), fmean.span(), frstd.span());
      cuda::add_layer_norm_lowered<H>(fx.view(), dy_.view(), fw.view(), fb.view(), 1e-5, sum.span(),
                                      y.span(), mean.span(), rstd.span());
      CHECK(same_bits(sum.host(), fsum.host()));
      CHECK(agrees(y.host(), fy.host()));
      CHECK(same_bits(rstd.host(), frstd.host()));
      cuda::add_layer_norm_backward<float>(fdy.view(), fdsum.view(), fsum.view(), fw.view(),
                                           fmean.view(), frstd.view(), fdx.span(), fdw.span(),
                                           fdb.span());
      cuda::add_layer_norm_lowered_backward<H>(dy_.view(), fdsum.view(), sum.view(), fw.view(),
                                               mean.view(), rstd.view(), got_dx.span(), dx.span(),
                                               got_dw.span(), got_db.span());
      CHECK(same_bits(got_dx.host(), fdx.host()));
      CHECK(agrees(dx.host(), fdx.host()));
      CHECK(same_bits(got_dw.host(), fdw.host()));
      CHECK(same_bits(got_db.host(), fdb.host()));
    }
}

TEMPLATE_TEST_CASE("the casts of many tensors are one launch", "[cuda][half]", bf16, f16) {
  for (const std::size_t tensors : {1, 97, 112, 113, 300}) {
    INFO(tensors << " tensors");
    std::deque<OnDevice<float>> from;
    std::deque<OnDevice<TestType>> to;
    std::vector<std::vector<float>> values;
    std::vector<RoundedTensor<TestType>> table;
    for (std::size_t i = 0; i < tensors; ++i) {
      constexpr std::int64_t kSizes[] = {1, 0, 7, 64, 8191, 8192, 8193, 20'000};
      values.push_back(floats(hard_values<f16>(kSizes[(i + tensors) % 8], 5)));
      for (float& v : values.back()) v *= 1.001F;
      from.emplace_back(values.back(), i % 3 == 1 ? 1 : 0);
      to.emplace_back(values.back().size(), i % 5 == 1 ? 1 : 0);
      table.push_back({from.back().view(), to.back().span()});
    }
#ifdef RINGSMITH_VGPU
    Stream::current().synchronize();
    (void)vgpu::take_counts();
#endif
    cuda::round_all<TestType>(table);
#ifdef RINGSMITH_VGPU
    Stream::current().synchronize();
    std::uint64_t launches = 0;
    for (const vgpu::Count& c : vgpu::take_counts()) launches += c.runs;
    std::size_t filled = 0;
    for (const auto& v : values) filled += v.empty() ? 0 : 1;
    CHECK(launches == (filled + 111) / 112);
#endif
    for (std::size_t i = 0; i < tensors; ++i) REQUIRE(agrees(to[i].host(), values[i]));
  }
}
