// Compares attention in both modes with float64. Also tests embedding.
#include "kernels/attention.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/embedding.hpp"
#include "tests/kernels/support.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::kernels::cpu;
using ringsmith::testing::distance;
using ringsmith::testing::ModeScope;
using ringsmith::testing::narrow;
using ringsmith::testing::random_values;
using ringsmith::testing::widen;

namespace {

template <class T>
struct Packed {
  AttentionShape s;
  std::vector<T> qkv, dout, out = std::vector<T>(dout.size());
  std::vector<T> dqkv = std::vector<T>(qkv.size(), T(99));
  std::vector<RowStatistic<T>> statistics =
      std::vector<RowStatistic<T>>(static_cast<std::size_t>(s.rows()));

  [[nodiscard]] Heads<T> part(std::vector<T>& packed, int i) const {
    const std::int64_t c = s.heads * s.dim;
    return {packed.data() + i * c, s.tokens * 3 * c, s.dim, 3 * c};
  }
  [[nodiscard]] Heads<T> plain(std::vector<T>& x) const {
    const std::int64_t c = s.heads * s.dim;
    return {x.data(), s.tokens * c, s.dim, c};
  }
  void run() {
    const Heads<T> q = part(qkv, 0), k = part(qkv, 1), v = part(qkv, 2);
    attention<T>(q, k, v, plain(out), statistics, s);
    attention_backward<T>(plain(dout), {q, k, v, plain(out), statistics}, part(dqkv, 0),
                          part(dqkv, 1), part(dqkv, 2), s);
  }
};

template <class T>
Packed<T> problem(const AttentionShape& s, const std::vector<T>& qkv, const std::vector<T>& dout) {
  return {s, qkv, dout};
}

}  // namespace

TEST_CASE("attention and its gradients agree with float64 around every tile boundary") {
  for (const kernels::Mode mode : {kernels::Mode::fast, kernels::Mode::oracle}) {
    const ModeScope scope(mode);
    for (const bool causal : {false, true})
      for (const std::int64_t tokens : {1, 2, 3, 17, 31, 63, 64, 65, 127, 128, 130})
        for (const std::int64_t dim : {1, 5, 32}) {
          const AttentionShape s{2, 3, tokens, dim, causal};
          const auto qkv = random_values(s.rows() * dim * 3, 1, 1.5F);
          const auto dout = random_values(s.rows() * dim, 2);
          auto got = problem(s, qkv, dout);
          auto want = problem(s, widen(qkv), widen(dout));
          got.run();
          want.run();
          REQUIRE(distance(got.out, narrow(want.out)) < 3e-6);
          REQUIRE(distance(got.dqkv, narrow(want.dqkv)) < 3e-6);
        }
  }
}

TEST_CASE("causal attention over one token returns the value and passes its gradient through") {
  for (const kernels::Mode mode : {kernels::Mode::fast, kernels::Mode::oracle}) {
    const ModeScope scope(mode);
    const AttentionShape s{1, 2, 1, 2, true};
    auto p = problem<float>(s, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {1, -1, 2, -2});
    p.run();
    CHECK(p.out == std::vector<float>{9, 10, 11, 12});
    CHECK(p.dqkv == std::vector<float>{0, 0, 0, 0, 0, 0, 0, 0, 1, -1, 2, -2});
  }
}

TEST_CASE("a later token changes no earlier output of causal attention, not by a bit") {
  for (const kernels::Mode mode : {kernels::Mode::fast, kernels::Mode::oracle}) {
    const ModeScope scope(mode);
    const AttentionShape s{1, 1, 70, 4, true};
    auto a = problem(s, random_values(70 * 12, 1), random_values(70 * 4, 2));
    auto b = a;
    for (std::size_t i = 69 * 12; i < b.qkv.size(); ++i) b.qkv[i] = 1e4F;
    a.run();
    b.run();
    a.out.resize(69 * 4);
    b.out.resize(69 * 4);
    CHECK(a.out == b.out);
  }
}

TEST_CASE("NaN in a query reaches its own row only") {
  for (const kernels::Mode mode : {kernels::Mode::fast, kernels::Mode::oracle}) {
    const ModeScope scope(mode);
    const AttentionShape s{1, 1, 20, 4, true};
    auto p = problem(s, random_values(20 * 12, 1), random_values(20 * 4, 2));
    p.qkv[10 * 12] = std::numeric_limits<float>::quiet_NaN();
    p.run();
    for (std::size_t i = 0; i < p.out.size(); ++i) CHECK(std::isnan(p.out[i]) == (i / 4 == 10));
  }
}

TEST_CASE("embedding copies rows, its gradient adds every use of a row to what is there") {
  const std::vector<float> weight = {0, 1, 10, 11, 20, 21};
  const std::vector<std::int64_t> index = {2, 0, 2};
  std::vector<float> out(6);
  embedding<float>(weight, 2, index, out);
  CHECK(out == std::vector<float>{20, 21, 0, 1, 20, 21});
  std::vector<float> dweight(6, 1.0F);
  embedding_backward<float>(std::vector<float>{1, 2, 3, 4, 5, 6}, 2, index, dweight);
  CHECK(dweight == std::vector<float>{4, 5, 1, 1, 7, 9});
  CHECK_THROWS_WITH(check_indices("embedding", index, 2),
                    ContainsSubstring("index 2 at position 0 is outside [0, 2)"));
  CHECK_THROWS_WITH(check_indices("embedding", std::vector<std::int64_t>{0, -1}, 2),
                    ContainsSubstring("index -1 at position 1"));
}
