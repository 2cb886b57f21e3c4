// Compares device attention with float64, in the packed layout that the models use.
#include "kernels/attention.hpp"

#include <cmath>
#include <limits>

#include "tests/kernels/cuda/support.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;
using namespace ringsmith::kernels;

namespace {

template <class T>
struct Result {
  std::vector<T> out, dqkv;
  bool operator==(const Result&) const = default;
};

template <class T>
Heads<T> part(T* packed, const AttentionShape& s, int i) {
  const std::int64_t c = s.heads * s.dim;
  return {packed + i * c, s.tokens * 3 * c, s.dim, 3 * c};
}
template <class T>
Heads<T> plain(T* x, const AttentionShape& s) {
  const std::int64_t c = s.heads * s.dim;
  return {x, s.tokens * c, s.dim, c};
}

Result<double> on_cpu(const AttentionShape& s, const std::vector<float>& qkv,
                      const std::vector<float>& dout) {
  std::vector<double> in = widen(qkv), dy = widen(dout);
  Result<double> r{dy, in};
  std::vector<RowStatistic<double>> statistics(static_cast<std::size_t>(s.rows()));
  const auto q = part(in.data(), s, 0), k = part(in.data(), s, 1), v = part(in.data(), s, 2);
  const auto out = plain(r.out.data(), s);
  cpu::attention<double>(q, k, v, out, statistics, s);
  cpu::attention_backward<double>(plain(dy.data(), s), {q, k, v, out, statistics},
                                  part(r.dqkv.data(), s, 0), part(r.dqkv.data(), s, 1),
                                  part(r.dqkv.data(), s, 2), s);
  return r;
}

template <class T>
Result<T> on_device(const AttentionShape& s, const std::vector<T>& qkv, const std::vector<T>& dout,
                    std::size_t offset = 0) {
  const OnDevice<T> in(qkv, offset), dy(dout, offset), out(dout.size(), offset),
      dqkv(qkv.size(), offset);
  const OnDevice<RowStatistic<T>> statistics(static_cast<std::size_t>(s.rows()));
  const auto q = part(in.data(), s, 0), k = part(in.data(), s, 1), v = part(in.data(), s, 2);
  cuda::attention<T>(q, k, v, plain(out.data(), s), statistics.span(), s);
  cuda::attention_backward<T>(
      plain(dy.data(), s), {q, k, v, plain(out.data(), s), statistics.view()},
      part(dqkv.data(), s, 0), part(dqkv.data(), s, 1), part(dqkv.data(), s, 2), s);
  return {out.host(), dqkv.host()};
}

std::vector<float> qkv_of(const AttentionShape& s) {
  return random_values(s.rows() * s.dim * 3, 1, 1.5F);
}
std::vector<float> dout_of(const AttentionShape& s) { return random_values(s.rows() * s.dim, 2); }

}  // namespace

TEST_CASE("attention on a device and its gradients agree with float64 around every tile",
          "[cuda]") {
  for (const bool causal : {false, true})
    for (const std::int64_t tokens : {1, 3, 16, 31, 33, 63, 64, 65, 130})
      for (const std::int64_t dim : {1, 5, 32, 33, 64, 65, 128, 130}) {
        if (tokens > 65 && dim > 64) continue;
        const AttentionShape s{2, 2, tokens, dim, causal};
        INFO(tokens << " tokens of " << dim << (causal ? ", causal" : ""));
        const auto got = on_device(s, qkv_of(s), dout_of(s));
        const auto want = on_cpu(s, qkv_of(s), dout_of(s));
        REQUIRE(distance(got.out, narrow(want.out)) < 3e-6);
        REQUIRE(distance(got.dqkv, narrow(want.dqkv)) < 3e-6);
      }
}

TEST_CASE("attention of doubles on a device agrees to 1e-12", "[cuda]") {
  for (const bool causal : {false, true}) {
    const AttentionShape s{1, 2, 19, 6, causal};
    const auto got = on_device(s, widen(qkv_of(s)), widen(dout_of(s)));
    const auto want = on_cpu(s, qkv_of(s), dout_of(s));
    for (std::size_t i = 0; i < want.out.size(); ++i)
      REQUIRE(std::abs(got.out[i] - want.out[i]) < 1e-12);
    for (std::size_t i = 0; i < want.dqkv.size(); ++i)
      REQUIRE(std::abs(got.dqkv[i] - want.dqkv[i]) < 1e-12);
  }
}

TEST_CASE("attention on a device: misaligned heads, and the same bits in every run", "[cuda]") {
  const AttentionShape s{2, 3, 70, 40, true};
  const auto aligned = on_device(s, qkv_of(s), dout_of(s));
  CHECK(on_device(s, qkv_of(s), dout_of(s)) == aligned);
  CHECK(on_device(s, qkv_of(s), dout_of(s), 1) == aligned);
}

TEST_CASE("a later token changes no earlier output of causal attention on a device, by no bit",
          "[cuda]") {
  const AttentionShape s{1, 1, 70, 4, true};
  auto qkv = qkv_of(s);
  auto before = on_device(s, qkv, dout_of(s)).out;
  for (std::size_t i = 69 * 12; i < qkv.size(); ++i) qkv[i] = 1e4F;
  auto after = on_device(s, qkv, dout_of(s)).out;
  before.resize(69 * 4);
  after.resize(69 * 4);
  CHECK(before == after);
}

TEST_CASE("NaN in a query reaches its own row only, on a device too", "[cuda]") {
  const AttentionShape s{1, 1, 50, 4, true};
  auto qkv = qkv_of(s);
  qkv[10 * 12] = std::numeric_limits<float>::quiet_NaN();
  const auto out = on_device(s, qkv, dout_of(s)).out;
  for (std::size_t i = 0; i < out.size(); ++i) CHECK(std::isnan(out[i]) == (i / 4 == 10));
}

TEST_CASE("attention on a device over nothing does nothing", "[cuda]") {
  for (const AttentionShape& s : {AttentionShape{0, 2, 5, 4, true}, AttentionShape{2, 2, 0, 4}}) {
    const auto r = on_device<float>(s, {}, {});
    CHECK((r.out.empty() && r.dqkv.empty()));
  }
}
