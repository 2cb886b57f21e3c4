// Compares attention in bf16 on tensor cores with float64 on the same rounded operands. Each run
// must give the same bits.
#include <cmath>
#include <limits>

#include "kernels/attention.hpp"
#include "kernels/cuda/matmul.hpp"
#include "tests/kernels/cuda/support.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;
using namespace ringsmith::kernels;

namespace {

std::vector<bf16> halves(std::int64_t n, unsigned seed) {
  std::vector<bf16> out;
  for (const float x : random_values(n, seed)) out.push_back(bf16(2 * x));
  return out;
}
std::vector<double> wide(const std::vector<bf16>& x) {
  std::vector<double> out;
  for (const bf16 v : x) out.push_back(double{static_cast<float>(v)});
  return out;
}

// Operand i of a (b, t, parts, h, d) array.
template <class T>
Heads<T> part(T* data, const AttentionShape& s, std::int64_t i, std::int64_t parts) {
  const std::int64_t channels = s.heads * s.dim;
  return {data + i * channels, s.tokens * parts * channels, s.dim, parts * channels};
}

// Returns the largest difference relative to the largest value.
double off(const std::vector<bf16>& got, const std::vector<double>& want) {
  double most = 0, size = 1e-3;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double d = std::abs(double{static_cast<float>(got[i])} - want[i]);
    if (!(d <= most)) most = std::isnan(d) ? HUGE_VAL : d;  // a NaN must not be lost
    size = std::max(size, std::abs(want[i]));
  }
  return most / size;
}

struct Run {
  std::vector<bf16> out, gradients;
  std::vector<float> largest, inverse;
};
Run on_device(const std::vector<bf16>& qkv, const std::vector<bf16>& dout, const AttentionShape& s,
              std::size_t offset, std::size_t dout_offset) {
  const OnDevice<bf16> in(qkv, offset), dy(dout, dout_offset), out(dout.size(), offset),
      dqkv(qkv.size(), offset);
  const OnDevice<float> statistics(static_cast<std::size_t>(2 * s.rows()));
  const std::span<RowStatistic<float>> rows(
      reinterpret_cast<RowStatistic<float>*>(statistics.data()),
      static_cast<std::size_t>(s.rows()));
  const auto of = [&](std::int64_t i) { return part<const bf16>(in.data(), s, i, 3); };
  const auto grad = [&](std::int64_t i) { return part(dqkv.data(), s, i, 3); };
  cuda::attention_bf16(of(0), of(1), of(2), part(out.data(), s, 0, 1), rows, s);
  cuda::attention_backward_bf16(part<const bf16>(dy.data(), s, 0, 1),
                                {of(0), of(1), of(2), part<const bf16>(out.data(), s, 0, 1), rows},
                                grad(0), grad(1), grad(2), s);
  Run run{out.host(), dqkv.host(), {}, {}};
  const auto numbers = statistics.host();
  for (std::size_t i = 0; i < numbers.size(); i += 2) {
    run.largest.push_back(numbers[i]);
    run.inverse.push_back(numbers[i + 1]);
  }
  return run;
}

void check(const AttentionShape& s, std::size_t offset, std::size_t dout_offset, float size = 1) {
  INFO("tokens " << s.tokens << ", dim " << s.dim << ", causal " << s.causal << ", offset "
                 << offset << ", of dout " << dout_offset);
  const std::int64_t n = s.rows() * s.dim;
  auto qkv = halves(3 * n, 1);
  for (bf16& x : qkv) x = bf16(size * static_cast<float>(x));
  const auto dout = halves(n, 2);
  const Run run = on_device(qkv, dout, s, offset, dout_offset);

  const auto in = wide(qkv), dy = wide(dout);
  std::vector<double> out(dout.size()), dqkv(qkv.size());
  std::vector<RowStatistic<double>> rows(static_cast<std::size_t>(s.rows()));
  const auto of = [&](std::int64_t i) { return part<const double>(in.data(), s, i, 3); };
  const auto grad = [&](std::int64_t i) { return part(dqkv.data(), s, i, 3); };
  cpu::attention<double>(of(0), of(1), of(2), part(out.data(), s, 0, 1), rows, s);
  cpu::attention_backward<double>(
      part<const double>(dy.data(), s, 0, 1),
      AttentionSaved<double>{of(0), of(1), of(2), part<const double>(out.data(), s, 0, 1), rows},
      grad(0), grad(1), grad(2), s);
  // P, dS and the results have 8 significant bits, and dS is a difference of such numbers.
  REQUIRE(off(run.out, out) < 6e-3);
  REQUIRE(off(run.gradients, dqkv) < 1.5e-2);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    REQUIRE(std::abs(double{run.largest[i]} - rows[i].largest) <
            1e-5 * (1 + std::abs(rows[i].largest)));
    REQUIRE(std::abs(double{run.inverse[i]} / rows[i].inverse_sum - 1) < 1e-4);
  }
}

}  // namespace

TEST_CASE("attention of bf16 on tensor cores, forward and backward, beside float64",
          "[cuda][attention_tensor]") {
  for (const bool causal : {true, false}) {
    for (const std::int64_t tokens : {1, 17, 64, 65, 130})
      for (const std::int64_t dim : {16, 64, 128}) check({2, 2, tokens, dim, causal}, 0, 0);
    // Token counts around multiples of a tile. Whole tiles compare no indices.
    for (const std::int64_t tokens : {63, 127, 128, 129, 193}) {
      check({1, 1, tokens, 64, causal}, 0, 0);
      check({1, 1, tokens, 128, causal}, 0, 0);
    }
    for (const std::int64_t dim : {1, 7, 20, 33, 100}) check({1, 3, 70, dim, causal}, 0, 0);
    for (const std::int64_t dim : {8, 24, 40, 72, 96}) check({1, 2, 70, dim, causal}, 0, 0);
    check({1, 2, 70, 32, causal}, 1, 1);  // no operand is aligned
    check({3, 1, 40, 40, causal}, 3, 3);
    check({1, 2, 70, 32, causal}, 2, 2);  // two results may be stored at once
    check({1, 2, 70, 32, causal}, 0, 1);  // only dout is unaligned
    check({1, 2, 70, 32, causal}, 1, 0);
  }
}

TEST_CASE("attention of bf16 with scores of hundreds, where a row has few probable keys",
          "[cuda][attention_tensor]") {
  for (const bool causal : {true, false})
    for (const std::int64_t dim : {32, 64, 128}) check({1, 2, 130, dim, causal}, 0, 0, 8);
}

TEST_CASE("attention of bf16 has the same bits in each run, and wherever operands begin",
          "[cuda][attention_tensor]") {
  const AttentionShape s{2, 2, 100, 64, true};
  const auto qkv = halves(3 * s.rows() * s.dim, 3), dout = halves(s.rows() * s.dim, 4);
  const Run first = on_device(qkv, dout, s, 0, 0);
  for (const std::size_t offset : {0, 0, 1}) {
    const Run run = on_device(qkv, dout, s, offset, offset);
    for (std::size_t i = 0; i < run.out.size(); ++i) REQUIRE(run.out[i].bits == first.out[i].bits);
    for (std::size_t i = 0; i < run.gradients.size(); ++i)
      REQUIRE(run.gradients[i].bits == first.gradients[i].bits);
  }
}

TEST_CASE("attention of bf16: NaN in a query is in its row alone", "[cuda][attention_tensor]") {
  const AttentionShape s{1, 2, 70, 32, true};
  auto qkv = halves(3 * s.rows() * s.dim, 5);
  // Plants a NaN in q, at token 10 of head 1.
  qkv[static_cast<std::size_t>(10 * 3 * 64 + 32 + 5)] =
      bf16(std::numeric_limits<float>::quiet_NaN());
  const Run run = on_device(qkv, halves(s.rows() * s.dim, 6), s, 0, 0);
  for (std::int64_t token = 0; token < 70; ++token)
    for (std::int64_t c = 0; c < 64; ++c)
      REQUIRE(std::isnan(static_cast<float>(run.out[static_cast<std::size_t>(token * 64 + c)])) ==
              (token == 10 && c >= 32));
}

TEST_CASE("attention of bf16: a later token changes no bit of an earlier result",
          "[cuda][attention_tensor]") {
  const AttentionShape s{1, 1, 200, 64, true};
  auto qkv = halves(3 * s.rows() * s.dim, 7);
  const auto dout = halves(s.rows() * s.dim, 8);
  const auto before = on_device(qkv, dout, s, 0, 0).out;
  constexpr std::size_t kSame = 130;
  for (std::size_t i = kSame * 3 * 64; i < qkv.size(); ++i) qkv[i] = bf16(100.0F);
  const auto after = on_device(qkv, dout, s, 0, 0).out;
  for (std::size_t i = 0; i < kSame * 64; ++i) REQUIRE(before[i].bits == after[i].bits);
}

TEST_CASE("attention of bf16: NaN in a key is in the rows that see it",
          "[cuda][attention_tensor]") {
  const AttentionShape s{1, 1, 150, 64, true};
  auto qkv = halves(3 * s.rows() * s.dim, 9);
  qkv[100 * 3 * 64 + 64 + 5] = bf16(std::numeric_limits<float>::quiet_NaN());
  const Run run = on_device(qkv, halves(s.rows() * s.dim, 10), s, 0, 0);
  for (std::size_t i = 0; i < run.out.size(); ++i)
    REQUIRE(std::isnan(static_cast<float>(run.out[i])) == (i / 64 >= 100));
}

TEST_CASE("attention of bf16: a tile of scores that are all -infinity gives no NaN",
          "[cuda][attention_tensor]") {
  for (const bool causal : {true, false})
    for (const std::int64_t dim : {32, 64, 128}) {
      INFO("dim " << dim << ", causal " << causal);
      const AttentionShape s{1, 1, 150, dim, causal};
      auto qkv = halves(3 * s.rows() * s.dim, 11);
      // The scores of the first 64 keys are below the range of float, but not of double.
      for (std::int64_t token = 0; token < s.tokens; ++token) {
        bf16* const at = qkv.data() + token * 3 * dim;
        at[0] = bf16(token % 3 == 0 ? 0.0F : 1e20F);
        at[dim] = bf16(token < 64 ? -1e25F : 1e-22F);
      }
      const auto dout = halves(s.rows() * s.dim, 12);
      const Run run = on_device(qkv, dout, s, 0, 0);
      const auto in = wide(qkv);
      std::vector<double> want(dout.size());
      std::vector<RowStatistic<double>> rows(static_cast<std::size_t>(s.rows()));
      const auto of = [&](std::int64_t i) { return part<const double>(in.data(), s, i, 3); };
      cpu::attention<double>(of(0), of(1), of(2), part(want.data(), s, 0, 1), rows, s);
      // With causal attention, the first 64 tokens attend to no other keys.
      const auto skip = static_cast<std::ptrdiff_t>(causal ? 64 * dim : 0);
      REQUIRE(off({run.out.begin() + skip, run.out.end()}, {want.begin() + skip, want.end()}) <
              6e-3);
      if (causal) continue;
      for (const bf16 x : run.gradients) REQUIRE(std::isfinite(static_cast<float>(x)));
    }
}

TEST_CASE("attention of bf16: a key at -infinity has no gradient of its value",
          "[cuda][attention_tensor]") {
  // 70 tokens: the last tile has rows of zeros, whose scores with this key are NaN.
  const AttentionShape s{1, 1, 70, 64, false};
  auto qkv = halves(3 * s.rows() * s.dim, 13);
  for (std::size_t token = 0; token < 70; ++token) qkv[token * 3 * 64] = bf16(1.0F);
  qkv[5 * 3 * 64 + 64] = bf16(-std::numeric_limits<float>::infinity());
  const Run run = on_device(qkv, halves(s.rows() * s.dim, 14), s, 0, 0);
  for (std::size_t d = 0; d < 64; ++d)
    REQUIRE(static_cast<float>(run.gradients[5 * 3 * 64 + 128 + d]) == 0.0F);
}

TEST_CASE("attention of bf16: no tokens, and heads that are too wide", "[cuda][attention_tensor]") {
  const OnDevice<bf16> none(std::vector<bf16>{});
  const AttentionShape empty{0, 2, 5, 32, true};
  cuda::attention_bf16({none.data()}, {none.data()}, {none.data()}, {none.data()}, {}, empty);
  CHECK_FALSE(cuda::has_attention_bf16({1, 1, 1, 129, true}));
  CHECK_THROWS_WITH(cuda::attention_bf16({none.data()}, {none.data()}, {none.data()}, {none.data()},
                                         {}, {1, 1, 1, 129, true}),
                    ContainsSubstring("dim must be 1 to 128, got 129"));
  const AttentionShape endless{1, 1, 65535 * 64 + 1, 64, true};
  CHECK_FALSE(cuda::has_attention_bf16(endless));
  CHECK_FALSE(cuda::has_attention_bf16({65536, 1, 1, 64, true}));
  CHECK_THROWS_WITH(
      cuda::attention_bf16({none.data()}, {none.data()}, {none.data()}, {none.data()}, {}, endless),
      ContainsSubstring("at most 4194240 tokens and 65535 batches, got 4194241 and 1"));
  for (const int version : {0, 8}) {
    cuda::set_matmul_version(version);
    if (version == 8) CHECK(cuda::has_attention_bf16({1, 1, 1, 64, true}));
  }
  cuda::set_matmul_version(0);
}
