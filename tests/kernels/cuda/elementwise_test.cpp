// Compares element-wise kernels on a device with the CPU's oracles, even for NaN and infinities.
#include "kernels/elementwise.hpp"

#include <limits>

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

// True if all elements agree within 8 epsilon relative to the wanted value (or to 1e-6, if that is
// larger) or are both NaN. Infinities must be equal.
template <class T>
bool close(const std::vector<T>& got, const std::vector<T>& want) {
  const T ulps = 8 * std::numeric_limits<T>::epsilon();
  for (std::size_t i = 0; i < got.size(); ++i) {
    const T a = got[i], b = want[i];
    if (std::isnan(a) && std::isnan(b)) continue;
    if (a == b) continue;
    if (!std::isfinite(b)) return false;  // the relative tolerance would accept any difference
    if (!(std::abs(a - b) <= ulps * std::max(T(1e-6), std::abs(b)))) return false;
  }
  return got.size() == want.size();
}

template <class T>
void compare_all(const Sizes& shape) {
  const auto n = numel_of(shape);
  const auto a = special_values<T>(n, 1), b = special_values<T>(n, 2);
  for (const Arrangement& arrangement : arrangements(shape)) {
    INFO("arrangement " << arrangement.name << " of " << n);
    const Arranged<T> x(arrangement, a), y(arrangement, b), out(arrangement, std::vector<T>(a));
    const auto compare = [&](const auto& on_device, const auto& on_cpu) {
      on_device(out.device(), x.device(), y.device());
      on_cpu(out.host(), x.host(), y.host());
      REQUIRE(close(out.device_values(), out.host_values()));
    };
    for (int op = 0; op <= static_cast<int>(Unary::gelu_tanh); ++op)
      compare([=](auto o, auto v, auto) { cuda::unary<T>(static_cast<Unary>(op), o, v); },
              [=](auto o, auto v, auto) { cpu::unary<T>(static_cast<Unary>(op), o, v); });
    for (int op = 0; op <= static_cast<int>(Binary::gelu_tanh_backward); ++op)
      compare([=](auto o, auto v, auto w) { cuda::binary<T>(static_cast<Binary>(op), o, v, w); },
              [=](auto o, auto v, auto w) { cpu::binary<T>(static_cast<Binary>(op), o, v, w); });
    for (int op = 0; op <= static_cast<int>(Scalar::pow_backward); ++op)
      for (const T s : {T(0), T(1), T(2), T(3), T(0.5), T(-1), T(-2), T(1.7)})
        compare([=](auto o, auto v, auto) { cuda::scalar<T>(static_cast<Scalar>(op), o, v, s); },
                [=](auto o, auto v, auto) { cpu::scalar<T>(static_cast<Scalar>(op), o, v, s); });
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
