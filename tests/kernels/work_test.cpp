// Compares the profiler's counts of operations and bytes with those computed by hand.
#include "kernels/work.hpp"

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/attention.hpp"
#include "kernels/conv.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/embedding.hpp"
#include "kernels/layernorm.hpp"
#include "kernels/matmul.hpp"
#include "kernels/optim.hpp"
#include "kernels/reduction.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::kernels;

namespace {

const Device kCpu = Device::cpu();

// The work that the profiler counts for the only kernel that body calls.
template <class Body>
profile::KernelWork counted(const char* name, const Body& body) {
  (void)profile::take_rows();
  profile::enable(true);
  body();
  profile::enable(false);
  const auto rows = profile::take_rows();
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].name == name);
  CHECK(rows[0].calls == 1);
  return rows[0].work;
}

std::vector<float> numbers(std::int64_t n) {
  return std::vector<float>(static_cast<std::size_t>(n), 0.5F);
}

// The names of all kernels that the headers of kernels/ declare for a device.
std::set<std::string> declared_kernels() {
  const std::regex declaration(R"(\bRINGSMITH_(KERNEL|ON_DEVICE|ON_DEVICE_TYPED|PROFILED)\((\w+))");
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(RINGSMITH_SOURCE_DIR "/kernels")) {
    if (file.path().extension() != ".hpp" || file.path().filename() == "on_device.hpp") continue;
    std::ifstream text(file.path());
    std::smatch found;
    for (std::string line; std::getline(text, line);)
      if (std::regex_search(line, found, declaration)) names.insert(found[2]);
  }
  return names;
}

View<float> view_of(std::vector<float>& v) {
  View<float> out{v.data(), {}};
  out.layout.dims = 1;
  out.layout.sizes[0] = std::ssize(v);
  out.layout.strides[0] = 1;
  return out;
}

}  // namespace

TEST_CASE("a product: 2 m k n, and every operand once; added to what is there, the result twice",
          "[work]") {
  constexpr std::int64_t m = 5, k = 7, n = 3;
  auto a = numbers(m * k), b = numbers(k * n), c = numbers(m * n), bias = numbers(n);
  const auto matrix = [](std::vector<float>& v, std::int64_t rows, std::int64_t cols) {
    return row_major(v.data(), rows, cols);
  };
  const auto product = counted("matmul", [&] {
    matmul(kCpu, Matrix<const float>(matrix(a, m, k)), Matrix<const float>(matrix(b, k, n)),
           matrix(c, m, n), Store::replace);
  });
  CHECK(product.flop == 2 * m * k * n);
  CHECK(product.bytes == 4 * (m * k + k * n + m * n));
  const auto added = counted("matmul", [&] {
    matmul(kCpu, Matrix<const float>(matrix(a, m, k)), Matrix<const float>(matrix(b, k, n)),
           matrix(c, m, n), Store::add);
  });
  CHECK(added.bytes == 4 * (m * k + k * n + 2 * m * n));
  // w is (n, k) here.
  const auto layer = counted("linear", [&] {
    linear(kCpu, Matrix<const float>(matrix(a, m, k)), Matrix<const float>(matrix(b, n, k)),
           std::span<const float>(bias), matrix(c, m, n));
  });
  CHECK(layer.flop == 2 * m * k * n);
  CHECK(layer.bytes == 4 * (m * k + k * n + n + m * n));
  const auto sums = counted("column_sum", [&] {
    column_sum(kCpu, Matrix<const float>(matrix(c, m, n)), std::span<float>(bias), Store::replace);
  });
  CHECK(sums.flop == m * n);
}

TEST_CASE("a product of 16-bit numbers: as many, of two bytes", "[work]") {
  constexpr std::int64_t m = 5, k = 7, n = 3;
  std::vector<bf16> a(m * k, bf16(0.5F)), b(k * n, bf16(0.5F)), c(m * n, bf16(0.0F)), bias(n);
  const auto product = counted("matmul", [&] {
    matmul(kCpu, row_major(a.data(), m, k), row_major(b.data(), k, n), row_major(c.data(), m, n),
           Store::add);
  });
  CHECK(product.flop == 2 * m * k * n);
  CHECK(product.bytes == 2 * (m * k + k * n + 2 * m * n));
  const auto layer = counted("linear", [&] {
    linear(kCpu, row_major(a.data(), m, k), row_major(b.data(), n, k), std::span<const bf16>(bias),
           row_major(c.data(), m, n));
  });
  CHECK(layer.flop == 2 * m * k * n);
  CHECK(layer.bytes == 2 * (m * k + n * k + n + m * n));
}

TEST_CASE(
    "attention: two products over the pairs of tokens, half of them if causal, plus the "
    "diagonal's other half",
    "[work]") {
  for (const bool causal : {false, true}) {
    const AttentionShape s{2, 3, 4, 5, causal};
    const std::int64_t elements = s.rows() * s.dim;
    auto q = numbers(elements), out = numbers(elements);
    std::vector<RowStatistic<float>> statistics(static_cast<std::size_t>(s.rows()));
    const auto heads = [&](std::vector<float>& v) {
      return Heads<float>{v.data(), s.heads * s.tokens * s.dim, s.tokens * s.dim, s.dim};
    };
    const Heads<const float> in = heads(q);
    const auto work = counted("attention", [&] {
      attention(kCpu, in, in, in, heads(out), std::span<RowStatistic<float>>(statistics), s);
    });
    const std::int64_t pairs = causal ? 4 * 5 / 2 : 4 * 4;
    CHECK(work.flop == 4.0 * 2 * 3 * 5 * static_cast<double>(pairs));
    CHECK(work.bytes == 4.0 * 4 * elements + 8.0 * s.rows());
  }
}

TEST_CASE("a convolution: 2 for each tap of each output", "[work]") {
  const Conv2dShape s{.n = 2,
                      .c = 4,
                      .h = 6,
                      .w = 5,
                      .out_c = 6,
                      .kh = 3,
                      .kw = 2,
                      .stride_h = 2,
                      .pad_h = 1,
                      .groups = 2};
  auto x = numbers(2 * 4 * 6 * 5), weight = numbers(6 * 2 * 3 * 2),
       y = numbers(2 * 6 * s.out_pixels());
  const auto work = counted("conv2d", [&] {
    conv2d(kCpu, s, std::span<const float>(x), std::span<const float>(weight),
           std::span<const float>(), std::span<float>(y));
  });
  REQUIRE(s.out_h() == 3);
  REQUIRE(s.out_w() == 4);
  CHECK(work.flop == 2.0 * (2 * 6 * 3 * 4) * (2 * 3 * 2));
  CHECK(work.bytes == 4.0 * static_cast<double>(x.size() + weight.size() + y.size()));
}

TEST_CASE("element-wise and row-wise kernels: so many for each element", "[work]") {
  constexpr std::int64_t n = 12;
  auto x = numbers(n), y = numbers(n), w = numbers(4), b = numbers(4), mean = numbers(3),
       rstd = numbers(3);
  CHECK(counted("unary", [&] {
          unary(kCpu, Unary::exp, view_of(y), View<const float>(view_of(x)));
        }).flop == n);
  CHECK(counted("unary", [&] {
          unary(kCpu, Unary::gelu_tanh, view_of(y), View<const float>(view_of(x)));
        }).flop == 9 * n);
  const auto norm = counted("layer_norm", [&] {
    layer_norm(kCpu, std::span<const float>(x), std::span<const float>(w),
               std::span<const float>(b), 1e-5, std::span<float>(y), std::span<float>(mean),
               std::span<float>(rstd));
  });
  CHECK(norm.flop == 8 * n);
  CHECK(norm.bytes == 4 * (2 * n + 4 + 4 + 3 + 3));
}

TEST_CASE("a maximum: a comparison for each element, of which its view shows the first ones",
          "[work]") {
  constexpr std::int64_t rows = 3, n = 7;
  auto x = numbers(rows * n), values = numbers(rows);
  std::vector<std::int64_t> indices(rows);
  const auto shown = [](auto* data, std::int64_t stride) {
    View<std::remove_pointer_t<decltype(data)>> out{data, {}};
    out.layout.dims = 1;
    out.layout.sizes[0] = rows;
    out.layout.strides[0] = stride;
    return out;
  };
  const auto work = counted("max", [&] {
    kernels::max(kCpu, shown(values.data(), 1), shown(indices.data(), 1),
                 shown(std::as_const(x).data(), n), Reduced{n, 1});
  });
  CHECK(work.flop == rows * n);
  CHECK(work.bytes == 4 * rows * n + (4 + 8) * rows);
  const auto back = counted("max_backward", [&] {
    max_backward(kCpu, shown(x.data(), n), shown(std::as_const(indices).data(), 1),
                 shown(std::as_const(values).data(), 1), Reduced{n, 1});
  });
  CHECK(back.flop == 0);
  CHECK(back.bytes == 4 * rows * n + (4 + 8) * rows);
}

TEST_CASE("an optimizer reads and writes its state; an embedding touches the rows it picks",
          "[work]") {
  constexpr std::int64_t n = 10;
  auto p = numbers(n), g = numbers(n), m = numbers(n), v = numbers(n);
  const auto step = counted("adam", [&] {
    adam(kCpu, std::span<float>(p), std::span<const float>(g), std::span<float>(m),
         std::span<float>(v), std::span<float>(), AdamStep{});
  });
  CHECK(step.bytes == 4 * 7 * n);  // p, m and v read and written, g read
  auto p2 = numbers(3), g2 = numbers(3), m2 = numbers(3), v2 = numbers(3), largest = numbers(3);
  const std::vector<AdamTensor<float>> tensors{{p, g, m, v, {}}, {p2, g2, m2, v2, largest}};
  const auto steps = counted(
      "adam_all", [&] { adam_all(kCpu, std::span<const AdamTensor<float>>(tensors), AdamStep{}); });
  CHECK(steps.bytes == 4 * (7 * (n + 3) + 2 * 3));
  CHECK(steps.flop == 14 * (n + 3));
  std::vector<std::int32_t> found(1);
  const auto unscaled = counted(
      "unscale", [&] { unscale(kCpu, std::span<float>(g), 0.5F, std::span<std::int32_t>(found)); });
  CHECK(unscaled.flop == 2 * n);
  CHECK(unscaled.bytes == 2 * (4 * n + 4));
  constexpr std::int64_t rows = 1000, dim = 2;
  auto table = numbers(rows * dim), out = numbers(3 * dim);
  const std::vector<std::int64_t> index{7, 0, 999};
  const auto picked = counted("embedding", [&] {
    embedding(kCpu, std::span<const float>(table), dim, std::span<const std::int64_t>(index),
              std::span<float>(out));
  });
  CHECK(picked.flop == 0);
  CHECK(picked.bytes == 4 * 2 * (3 * dim) + 8 * 3);
}

TEST_CASE("a product of nothing is no work", "[work]") {
  auto b = numbers(6);
  const auto work = counted("matmul", [&] {
    matmul(kCpu, Matrix<const float>(row_major<const float>(nullptr, 0, 2)),
           Matrix<const float>(row_major(b.data(), 2, 3)), row_major<float>(nullptr, 0, 3),
           Store::replace);
  });
  CHECK(work.flop == 0);
  CHECK(work.bytes == 4 * 6);
}

TEST_CASE("every kernel has a rule for its operations, or has none of them", "[work]") {
  // They only move or select numbers, or compute with integers.
  const std::set<std::string> none{"check_indices", "check_targets", "copy",
                                   "dropout_mask",  "embedding",     "fill",
                                   "masked_fill",   "max_backward",  "round_all"};
  Operands one;
  for (int i = 0; i < 4; ++i) one.add<float>(1);
  one.inner = one.pairs = 1;
  const std::set<std::string> kernels = declared_kernels();
  REQUIRE(kernels.size() > 50);
  for (const std::string& name : none) CHECK(kernels.contains(name));
  for (const std::string& name : kernels) {
    INFO(name << ": add a row to kRules in kernels/cpu/work.cpp, or its name to this test");
    CHECK((work_of(name.c_str(), one).flop > 0) != none.contains(name));
  }
}
