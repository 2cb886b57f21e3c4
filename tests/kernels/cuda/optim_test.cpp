// Optimizer steps on a device must have the bits of the CPU's oracles, because they do the same
// operations in the same order, each rounded separately.
#include "kernels/optim.hpp"

#include <cmath>
#include <limits>
#include <memory>

#include "tests/kernels/cuda/support.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;
using namespace ringsmith::kernels;

namespace {

template <class T>
std::vector<T> values(std::size_t n, unsigned seed) {
  const auto x = random_values(static_cast<std::int64_t>(n), seed);
  return {x.begin(), x.end()};
}
template <class T>
std::vector<T> squares(std::vector<T> x) {
  for (T& v : x) v = v * v;
  return x;
}

template <class T>
void compare_sgd(std::size_t n, std::size_t offset, const SgdStep& step) {
  auto p = values<T>(n, 1), buf = values<T>(n, 3);
  const auto g = values<T>(n, 2);
  const OnDevice<T> p_(p, offset), g_(g), buf_(buf, offset);
  const ModeScope oracle(Mode::oracle);
  cuda::sgd<T>(p_.span(), g_.view(), buf_.span(), step);
  cpu::sgd<T>(p, g, buf, step);
  REQUIRE(p_.host() == p);
  REQUIRE(buf_.host() == buf);
}

template <class T>
void compare_adam(std::size_t n, std::size_t offset, bool amsgrad, const AdamStep& step) {
  auto p = values<T>(n, 1), m = values<T>(n, 3), v = squares(values<T>(n, 4));
  std::vector<T> largest;
  if (amsgrad) largest = squares(values<T>(n, 5));
  const auto g = values<T>(n, 2);
  const OnDevice<T> p_(p, offset), g_(g), m_(m), v_(v, offset), largest_(largest);
  const ModeScope oracle(Mode::oracle);
  cuda::adam<T>(p_.span(), g_.view(), m_.span(), v_.span(), largest_.span(), step);
  cpu::adam<T>(p, g, m, v, largest, step);
  REQUIRE(p_.host() == p);
  REQUIRE(m_.host() == m);
  REQUIRE(v_.host() == v);
  REQUIRE(largest_.host() == largest);
}

template <class T>
struct Parameter {
  std::vector<T> p, g, m, v, largest;
  OnDevice<T> p_, g_, m_, v_, largest_;
  // misaligned: number of the array, 1 to 5, that is not aligned. For other numbers, all are
  // aligned.
  Parameter(const std::vector<T>& gradient, unsigned seed, std::size_t misaligned, bool amsgrad)
      : p(values<T>(gradient.size(), seed)),
        g(gradient),
        m(values<T>(gradient.size(), seed + 1)),
        v(squares(values<T>(gradient.size(), seed + 2))),
        largest(amsgrad ? squares(values<T>(gradient.size(), seed + 3)) : std::vector<T>()),
        p_(p, misaligned == 1 ? 1 : 0),
        g_(g, misaligned == 2 ? 1 : 0),
        m_(m, misaligned == 3 ? 1 : 0),
        v_(v, misaligned == 4 ? 1 : 0),
        largest_(largest, misaligned == 5 ? 1 : 0) {}
  [[nodiscard]] AdamTensor<T> tensor() const {
    return {p_.span(), g_.view(), m_.span(), v_.span(), largest_.span()};
  }
};

// Returns the number of kernels that f launches.
template <class F>
std::size_t launches_of(const F& f) {
  const Stream stream = Stream::create(current_device());
  const StreamGuard guard(stream);
  cudaGraph_t graph = nullptr;
  std::size_t nodes = 0;
  cuda_check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
  f();
  cuda_check(cudaStreamEndCapture(stream.get(), &graph));
  cuda_check(cudaGraphGetNodes(graph, nullptr, &nodes));
  cuda_check(cudaGraphDestroy(graph));
  return nodes;
}

}  // namespace

TEMPLATE_TEST_CASE("Adam of many parameters: few launches, and the oracle's bits", "[cuda][optim]",
                   float, double) {
  using T = TestType;
  const std::vector<std::size_t> sizes{0, 5, 1, 4096, 4097, 3, 12'290, 2049, 64, 8192};
  for (const bool amsgrad : {false, true})
    for (const std::size_t count : {0, 1, 10, 65, 143}) {
      INFO(count << " parameters, amsgrad " << amsgrad);
      std::vector<std::unique_ptr<Parameter<T>>> all;
      std::size_t there = 0;
      for (std::size_t i = 0; i < count; ++i) {
        // Counts above 64 need several tables. At such counts most parameters have few elements,
        // but every 64th is long.
        const std::size_t n = count <= 10 ? sizes[i % sizes.size()] : i % 64 == 63 ? 9000 : i % 7;
        auto g = values<T>(n, static_cast<unsigned>(5 * i));
        if (n > 0 && i % 9 == 3) g[n / 2] = std::numeric_limits<T>::quiet_NaN();
        all.push_back(
            std::make_unique<Parameter<T>>(g, static_cast<unsigned>(5 * i + 1), i % 7, amsgrad));
        there += n == 0 ? 0 : 1;
      }
      std::vector<AdamTensor<T>> tensors;
      for (const auto& one : all) tensors.push_back(one->tensor());
      const std::span<const AdamTensor<T>> span(tensors);
      const AdamStep step{.lr = 1e-3, .weight_decay = 0.01, .decoupled = count != 10, .t = 7};
      CHECK(launches_of([&] { cuda::adam_all<T>(span, step); }) == (there + 63) / 64);
      cuda::adam_all<T>(span, step);
      const ModeScope oracle(Mode::oracle);
      for (const auto& one : all) {
        cpu::adam<T>(one->p, one->g, one->m, one->v, one->largest, step);
        REQUIRE(same_bits(one->p_.host(), one->p));
        REQUIRE(same_bits(one->g_.host(), one->g));
        REQUIRE(same_bits(one->m_.host(), one->m));
        REQUIRE(same_bits(one->v_.host(), one->v));
        REQUIRE(same_bits(one->largest_.host(), one->largest));
      }
    }
}

TEMPLATE_TEST_CASE("Adam with step counts on the device: the oracle's counts and steps",
                   "[cuda][optim]", float, double) {
  using T = TestType;
  constexpr std::size_t kCount = 70;  // more than a table has
  std::vector<std::unique_ptr<Parameter<T>>> all;
  std::vector<AdamTensor<T>> tensors;
  std::vector<std::int32_t> which;
  std::vector<double> started(4 * kCount);  // AdamClock of each parameter
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::size_t n = i % 33 == 32 ? 9000 : 1 + i % 7;
    all.push_back(std::make_unique<Parameter<T>>(values<T>(n, static_cast<unsigned>(5 * i)),
                                                 static_cast<unsigned>(5 * i + 1), i % 7, false));
    tensors.push_back(all.back()->tensor());
    which.push_back(static_cast<std::int32_t>(kCount - 1 - i));
    started[4 * i] = static_cast<double>(i * i);  // their counts differ
  }
  const OnDevice<double> clocks(started), lr(std::vector<double>{2e-3});
  const auto as_clocks = [](std::span<double> rows) {
    return std::span(reinterpret_cast<AdamClock*>(rows.data()), rows.size() / 4);
  };
  // lr and t of the step must not count.
  const AdamStep step{.lr = 9, .weight_decay = 0.01, .decoupled = true, .t = 7};
  std::vector<double> want = started;
  const ModeScope oracle(Mode::oracle);
  for (int round = 0; round < 2; ++round) {
    cuda::adam_clocked<T>(tensors, which, as_clocks(clocks.span()), lr.view(), step);
    std::vector<AdamTensor<T>> on_cpu;
    for (const auto& one : all) on_cpu.push_back({one->p, one->g, one->m, one->v, one->largest});
    cpu::adam_clocked<T>(on_cpu, which, as_clocks(want), std::vector<double>{2e-3}, step);
    const std::vector<double> got = clocks.host();
    for (std::size_t i = 0; i < kCount; ++i) {
      INFO("clock " << i);
      CHECK(got[4 * i] == static_cast<double>(i * i + 1) + round);
      // A device's pow() has up to 2 units in the last place, of which 1 - pow() has more.
      for (std::size_t k = 1; k < 4; ++k)
        CHECK(std::abs(got[4 * i + k] - want[4 * i + k]) <= 1e-12 * want[4 * i + k]);
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      INFO("parameter " << i);
      const Parameter<T>& one = *all[i];
      REQUIRE(same_bits(one.m_.host(), one.m));
      REQUIRE(same_bits(one.v_.host(), one.v));
      const std::vector<T> p = one.p_.host();
      constexpr T kEpsilon = std::numeric_limits<T>::epsilon();
      for (std::size_t k = 0; k < p.size(); ++k)
        REQUIRE(std::abs(p[k] - one.p[k]) <= 16 * kEpsilon * (std::abs(one.p[k]) + 1));
      // One step of plain Adam with this count is the same.
      if (round > 0) continue;
      Parameter<T> plain(one.g, static_cast<unsigned>(5 * i + 1), 0, false);
      AdamStep now = step;
      now.lr = 2e-3;
      now.t = static_cast<std::int64_t>(started[4 * (kCount - 1 - i)]) + 1;
      cpu::adam<T>(plain.p, plain.g, plain.m, plain.v, plain.largest, now);
      REQUIRE(same_bits(plain.p, one.p));
    }
  }
}

TEMPLATE_TEST_CASE("optimizer steps on a device have the oracle's bits", "[cuda]", float, double) {
  for (const std::size_t n : {0, 1, 3, 4, 1025, 40'000})
    for (const std::size_t offset : {0, 1}) {
      compare_sgd<TestType>(n, offset, {.lr = 0.1});
      compare_sgd<TestType>(n, offset, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01});
      compare_sgd<TestType>(n, offset,
                            {.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .first = true});
      compare_sgd<TestType>(n, offset, {.lr = 0.1, .momentum = 0.9, .nesterov = true});
      for (const bool amsgrad : {false, true})
        for (const bool decoupled : {false, true})
          compare_adam<TestType>(
              n, offset, amsgrad,
              {.lr = 1e-3, .weight_decay = 0.01, .decoupled = decoupled, .t = 7});
    }
}

TEST_CASE("NaN in amsgrad's maximum stays on a device", "[cuda]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const OnDevice<float> p(std::vector<float>{1, 1}), g(std::vector<float>{nan, 1}),
      m(std::vector<float>{0, 0}), v(std::vector<float>{0, 0}), largest(std::vector<float>{1, nan});
  cuda::adam<float>(p.span(), g.view(), m.span(), v.span(), largest.span(), {});
  for (const float x : largest.host()) CHECK(std::isnan(x));
}

TEST_CASE("clipping on a device: sums of squares in double, one factor, no read-back", "[cuda]") {
  for (const std::size_t n : {0, 1, 5, 1000, 40'001})
    for (const std::size_t offset : {0, 1}) {
      const auto x = values<float>(n, 1);
      const auto y = values<double>(n, 2);
      const OnDevice<float> x_(x, offset), norm(1), factor(1);
      const OnDevice<double> y_(y), sums(2);
      std::vector<double> want(2);
      std::vector<float> want_norm(1), want_factor(1);
      const ModeScope oracle(Mode::oracle);
      cuda::sum_of_squares<float>(x_.view(), sums.span().first(1));
      cuda::sum_of_squares<double>(y_.view(), sums.span().last(1));
      cpu::sum_of_squares<float>(x, std::span(want).first(1));
      cpu::sum_of_squares<double>(y, std::span(want).last(1));
      const auto got = sums.host();
      for (std::size_t i = 0; i < 2; ++i) CHECK(std::abs(got[i] - want[i]) <= 1e-12 * want[i]);
      cuda::clip_factor(sums.view(), 0.5, norm.span(), factor.span());
      cpu::clip_factor(want, 0.5, want_norm, want_factor);
      CHECK(distance(norm.host(), want_norm) < 1e-7);
      CHECK(distance(factor.host(), want_factor) < 1e-7);
      auto scaled = x;
      cuda::scale<float>(x_.span(), factor.view());
      cpu::scale<float>(scaled, factor.host());
      CHECK(x_.host() == scaled);
    }
  const OnDevice<double> sums(std::vector<double>{1, std::numeric_limits<double>::quiet_NaN()});
  const OnDevice<float> norm(1), factor(1);
  cuda::clip_factor(sums.view(), 1.0, norm.span(), factor.span());
  CHECK((std::isnan(norm.host()[0]) && std::isnan(factor.host()[0])));
}
