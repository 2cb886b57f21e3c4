// Compares element-wise kernels on a device with the CPU's oracles, even for NaN and infinities.
#include "kernels/elementwise.hpp"

#include <cmath>
#include <limits>
#include <type_traits>

#include "tests/kernels/cuda/support.hpp"
#include "tests/kernels/cuda/views.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;
using namespace ringsmith::kernels;

namespace {

const std::vector<Sizes> kShapes{{0},    {1},    {3},       {4},       {1027},   {40000},
                                 {3, 5}, {8, 4}, {4, 3, 5}, {2, 0, 3}, {17, 64}, {2, 3, 4, 8}};

template <class T>
std::vector<T> special_values(std::int64_t n, unsigned seed) {
  std::vector<float> x = random_values(n, seed, 2.0F);
  const float specials[] = {0.0F,
                            -0.0F,
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(),
                            100.0F,
                            -100.0F,
                            1e-30F};
  for (std::size_t i = 0; i < x.size(); i += 3) x[i] = specials[i / 3 % 8];
  return {x.begin(), x.end()};
}

// Operations of IEEE arithmetic alone, which every machine rounds in the same way, must have the
// bits of the oracle. A device's exp, log, tanh, erf and pow differ from the host's, and the
// formulas around them may magnify the difference: 1 + tanh(u) cancels for u < 0, so no bound
// relative to the result of GELU holds. These operations are compared with the oracle in double,
// with the bounds on the error that tolerance() derives from the formulas.
//
// kUlps: the error of the mathematical functions that the bounds allow, in units in the last place
// of the result. NVIDIA documents 1 or 2 for all of them, and 4 for powf. (The entry
// kernels_cuda_libm moves the host's results, whose error is below 2, by up to 2.)
constexpr double kUlps = 4;

bool exact(Unary op) { return op == Unary::neg || op == Unary::sqrt || op == Unary::relu; }
bool exact(Binary op) {
  return op != Binary::gelu_erf_backward && op != Binary::gelu_tanh_backward;
}
// Power in kernels/cuda/elementwise_math.cuh does not call pow for these exponents.
bool exact(Scalar op, double s) {
  if (op != Scalar::pow && op != Scalar::pow_backward) return true;
  const double exponent = op == Scalar::pow ? s : s - 1;
  for (const double plain : {0.0, 1.0, 2.0, 3.0, 0.5, -0.5, -1.0, -2.0})
    if (exponent == plain) return true;
  return false;
}

// Returns the tolerance in units of epsilon. erf and tanh have an error of kUlps, and 2 more
// because their argument is rounded: an argument that is off by the factor 1 + e moves erf by at
// most 0.49 e, and tanh by 0.45 e, with e up to 3.5 epsilon. GELU multiplies this error by |x| / 2,
// and adds its own roundings.
double tolerance(Unary op, double x, double want) {
  switch (op) {
    case Unary::gelu_erf:
    case Unary::gelu_tanh:
      return (kUlps / 2 + 3) * std::abs(x);
    case Unary::sigmoid:
      return (kUlps + 2) * std::abs(want);
    default:  // the function itself
      return kUlps * std::abs(want);
  }
}
// The slope of GELU (erf) is a sum of two terms of at most 1. The slope of GELU (tanh) has
// the factor 1 - t^2, whose error is twice the error of t, multiplied by x/2 and the slope of the
// argument.
double tolerance(Binary op, double gradient, double x) {
  const double argument_slope = 0.7979 * (1 + 0.1342 * x * x);
  const double magnified = op == Binary::gelu_tanh_backward ? std::abs(x) * argument_slope : 0;
  return (kUlps + 3) * (1 + magnified) * std::abs(gradient);
}
double tolerance(Scalar /*op*/, double /*x*/, double want) { return (kUlps + 1) * std::abs(want); }

// True if `got` is within `epsilons` of the wanted value, or equal to it as a T, or both are NaN.
// Results below the smallest normal number may differ from it by that number: float loses them
// where exp overflows.
template <class T>
bool near(T got, double want, double epsilons) {
  const T rounded = static_cast<T>(want);
  if (std::isnan(got) && std::isnan(rounded)) return true;
  if (got == rounded) return true;
  if (!std::isfinite(rounded)) return false;
  const double most = epsilons * std::numeric_limits<T>::epsilon() + std::numeric_limits<T>::min();
  return std::abs(static_cast<double>(got) - want) <= most;
}

template <class V>
using ElementOf = std::remove_pointer_t<decltype(V::data)>;

template <class T>
void compare_all(const Sizes& shape) {
  const auto n = numel_of(shape);
  const auto a = special_values<T>(n, 1), b = special_values<T>(n, 2);
  const std::vector<double> a64(a.begin(), a.end()), b64(b.begin(), b.end());
  for (const Arrangement& arrangement : arrangements(shape)) {
    INFO("arrangement " << arrangement.name << " of " << n);
    const Arranged<T> x(arrangement, a), y(arrangement, b), out(arrangement, a);
    const Arranged<double> x64(arrangement, a64), y64(arrangement, b64), out64(arrangement, a64);
    // bound(x, y, wanted result)
    const auto compare = [&](bool is_exact, const auto& on_device, const auto& on_cpu,
                             const auto& bound) {
      on_device(out.device(), x.device(), y.device());
      if (is_exact) {
        on_cpu(out.host(), x.host(), y.host());
        REQUIRE(same_bits(out.device_values(), out.host_values()));
        return;
      }
      on_cpu(out64.host(), x64.host(), y64.host());
      const std::vector<T> got = out.device_values();
      const std::vector<double> want = out64.host_values(), in = x64.host_values(),
                                other = y64.host_values();
      REQUIRE(got.size() == want.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (near(got[i], want[i], bound(in[i], other[i], want[i]))) continue;
        INFO("of " << in[i] << ", " << other[i]);
        REQUIRE(static_cast<double>(got[i]) == want[i]);  // prints both
      }
    };
    for (int i = 0; i <= static_cast<int>(Unary::gelu_tanh); ++i) {
      const auto op = static_cast<Unary>(i);
      INFO("Unary " << i);
      compare(
          exact(op), [=](auto o, auto v, auto) { cuda::unary<T>(op, o, v); },
          [=](auto o, auto v, auto) { cpu::unary<ElementOf<decltype(o)>>(op, o, v); },
          [=](double v, double, double want) { return tolerance(op, v, want); });
    }
    for (int i = 0; i <= static_cast<int>(Binary::gelu_tanh_backward); ++i) {
      const auto op = static_cast<Binary>(i);
      INFO("Binary " << i);
      compare(
          exact(op), [=](auto o, auto v, auto w) { cuda::binary<T>(op, o, v, w); },
          [=](auto o, auto v, auto w) { cpu::binary<ElementOf<decltype(o)>>(op, o, v, w); },
          [=](double v, double w, double) { return tolerance(op, v, w); });
    }
    for (int i = 0; i <= static_cast<int>(Scalar::pow_backward); ++i)
      for (const T s : {T(0), T(1), T(2), T(3), T(0.5), T(-1), T(-2), T(1.7)}) {
        const auto op = static_cast<Scalar>(i);
        INFO("Scalar " << i << ", " << s);
        compare(
            exact(op, static_cast<double>(s)),
            [=](auto o, auto v, auto) { cuda::scalar<T>(op, o, v, s); },
            [=](auto o, auto v, auto) {
              using Element = ElementOf<decltype(o)>;
              cpu::scalar<Element>(op, o, v, static_cast<Element>(s));
            },
            [=](double v, double, double want) { return tolerance(op, v, want); });
      }
  }
}

}  // namespace

TEST_CASE("element-wise kernels on a device agree with the oracle in every layout", "[cuda]") {
  const ModeScope oracle(Mode::oracle);
  for (const Sizes& shape : kShapes) {
    compare_all<float>(shape);
    if (numel_of(shape) < 1000) compare_all<double>(shape);
  }
}

TEST_CASE("two-operand kernels on a device agree with the oracle under every broadcast", "[cuda]") {
  const ModeScope oracle(Mode::oracle);
  const Sizes shape{6, 5, 8};
  const auto values = random_values(numel_of(shape), 1);
  // The bits of `choice` say which dimensions of which operand are broadcast.
  for (unsigned choice = 0; choice < 64; ++choice) {
    Layout a = contiguous_layout(shape), b = a;
    for (std::size_t d = 0; d < 3; ++d) {
      if ((choice >> d & 1U) != 0) a.strides[d] = 0;
      if ((choice >> (d + 3) & 1U) != 0) b.strides[d] = 0;
    }
    const OnDevice<float> x(values), y(values), out(values.size());
    std::vector<float> want(values.size());
    const View<const float> left{x.data(), a}, right{y.data(), b};
    cuda::binary<float>(Binary::sub, {out.data(), contiguous_layout(shape)}, left, right);
    cpu::binary<float>(Binary::sub, {want.data(), contiguous_layout(shape)}, {values.data(), a},
                       {values.data(), b});
    REQUIRE(out.host() == want);
  }
}

TEST_CASE("masks on a device: filled, scaled, an infinity that is dropped becomes NaN", "[cuda]") {
  for (const std::int64_t n : {1, 7, 1024, 4099}) {
    const auto x = special_values<float>(n, 3);
    std::vector<std::uint8_t> keep;
    for (std::int64_t i = 0; i < n; ++i) keep.push_back(i % 3 == 1);
    const OnDevice<float> x_(x), filled(x.size()), scaled(x.size());
    const OnDevice<std::uint8_t> mask(keep);
    const Layout flat = contiguous_layout({n});
    const View<const bool> m{reinterpret_cast<const bool*>(mask.data()), flat};
    cuda::masked_fill<float>({filled.data(), flat}, {x_.data(), flat}, m, -5.0F);
    cuda::masked_scale<float>({scaled.data(), flat}, {x_.data(), flat}, m, 2.0F);
    std::vector<float> want_filled(x.size()), want_scaled(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      want_filled[i] = keep[i] != 0 ? -5.0F : x[i];
      want_scaled[i] = x[i] * (keep[i] != 0 ? 2.0F : 0.0F);
    }
    CHECK(same_bits(filled.host(), want_filled));
    CHECK(same_bits(scaled.host(), want_scaled));
  }
}

TEST_CASE("in place on a device equals out of place", "[cuda]") {
  const auto x = random_values(100'003, 6);
  const OnDevice<float> same(x), from(x), to(x.size());
  const Layout flat = contiguous_layout({std::ssize(x)});
  cuda::unary<float>(Unary::tanh, {same.data(), flat}, {same.data(), flat});
  cuda::unary<float>(Unary::tanh, {to.data(), flat}, {from.data(), flat});
  CHECK(same.host() == to.host());
}
