// Tests version 7 of the matrix product on the library, or on the emulated one.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/cuda/matmul.hpp"
#include "tests/kernels/cuda/support.hpp"
#ifdef RINGSMITH_VGPU
#include "kernels/vgpu/counters.hpp"
#include "kernels/vgpu/cublaslt.hpp"
#endif

using namespace ringsmith;
using namespace ringsmith::testing;
using namespace ringsmith::kernels;

namespace {

struct Case {
  std::int64_t m, n, k, batches = 1;
  std::size_t offset = 0;  // of the first element of each operand: misaligned unless 0 or 8
  bool a_by_columns = false, b_by_columns = false, bias = false;
  Store how = Store::replace;
};

template <class T>
std::vector<T> values(std::int64_t count, unsigned seed) {
  std::vector<T> out;
  for (const float x : random_values(count, seed)) out.push_back(T(x));
  return out;
}

template <class T>
Matrix<const T> matrix(const T* data, std::int64_t rows, std::int64_t cols, bool by_columns) {
  return by_columns ? row_major(data, cols, rows).t() : row_major(data, rows, cols);
}

// Tolerances. Half a unit in the last place of T, as a share of the value.
template <class T>
constexpr double kHalfUlp = std::is_same_v<T, float> ? 0x1p-24
                            : std::is_same_v<T, f16> ? 0x1p-11
                                                     : 0x1p-8;
// The error of a sum, as a share of the sum of magnitudes. Tensor cores truncate each addition, an
// error of up to 2^-23; with 40 terms an H200 reaches 2.6e-6.
template <class T>
constexpr double kSumError = std::is_same_v<T, float> ? 1e-6 : 40 * 0x1p-23;

template <class T>
void check(const Case& c) {
  const auto a = values<T>(c.batches * c.m * c.k, 1), b = values<T>(c.k * c.n, 2),
             bias = values<T>(c.n, 3), before = values<T>(c.batches * c.m * c.n, 4);
  const OnDevice<T> a_(a, c.offset), b_(b, c.offset), bias_(bias, c.offset), c_(before, c.offset);
  cuda::matmul_cublaslt(cuda::Product<T>{.a = matrix<T>(a_.data(), c.m, c.k, c.a_by_columns),
                                         .b = matrix<T>(b_.data(), c.k, c.n, c.b_by_columns),
                                         .c = row_major(c_.data(), c.m, c.n),
                                         .store = c.how,
                                         .bias = c.bias ? bias_.data() : nullptr,
                                         .batches = c.batches,
                                         .a_batch = c.m * c.k,
                                         .b_batch = 0,
                                         .c_batch = c.m * c.n});
  const std::vector<T> got = c_.host();
  const auto at = [](const std::vector<T>& v, std::int64_t i) {
    return double{static_cast<float>(v[static_cast<std::size_t>(i)])};
  };
  for (std::int64_t q = 0; q < c.batches; ++q)
    for (std::int64_t i = 0; i < c.m; ++i)
      for (std::int64_t j = 0; j < c.n; ++j) {
        const std::int64_t place = (q * c.m + i) * c.n + j;
        double want = (c.how == Store::add ? at(before, place) : 0) + (c.bias ? at(bias, j) : 0);
        double size = std::abs(want);
        for (std::int64_t k = 0; k < c.k; ++k) {
          const double term = at(a, q * c.m * c.k + (c.a_by_columns ? k * c.m + i : i * c.k + k)) *
                              at(b, c.b_by_columns ? j * c.k + k : k * c.n + j);
          want += term;
          size += std::abs(term);
        }
        // The library may round the product before it adds C, and once more before it adds the bias
        // (or in the other order).
        double between = 0;
        if (c.how == Store::add) {
          const double more = c.bias ? at(bias, j) : 0, of_c = at(before, place);
          between = std::abs(want - of_c - more);
          if (c.bias) between += std::max(std::abs(want - more), std::abs(want - of_c));
        }
        REQUIRE(std::abs(at(got, place) - want) <=
                kHalfUlp<T> * (std::abs(want) + between) + kSumError<T> * size);
      }
}

template <class T>
void check_all() {
  for (const Case& size : std::vector<Case>{
           {1, 1, 1}, {16, 8, 32}, {17, 9, 33, 3}, {5, 24, 40, 2}, {3, 4, 0}, {24, 16, 8, 1, 1}})
    for (int order = 0; order < 16; ++order) {
      Case c = size;
      c.a_by_columns = order % 2 == 1;
      c.b_by_columns = order / 2 % 2 == 1;
      c.bias = order / 4 % 2 == 1;
      c.how = order / 8 == 1 ? Store::add : Store::replace;
      INFO(c.m << " x " << c.n << " x " << c.k << " of " << sizeof(T) << " bytes, order " << order);
      check<T>(c);
    }
}

}  // namespace

TEST_CASE("cuBLASLt: layouts, batches, biases, sums that are added to", "[cuda][cublaslt]") {
  check_all<float>();
  check_all<f16>();
  check_all<bf16>();
}

// A library that splits k may add parts in float, or round each part to 16 bits first.
TEST_CASE("cuBLASLt rounds a sum over many k once", "[cuda][cublaslt]") {
  check<bf16>({16, 24, 8192});
  check<f16>({16, 24, 8192});
  check<float>({16, 24, 8192});
}

TEST_CASE("cuBLASLt: a kind of product that begins misaligned in a batch has its own algorithm",
          "[cuda][cublaslt]") {
  // Both have the same shape. In the first, each matrix of the batch is aligned.
  const OnDevice<bf16> a(values<bf16>(200, 1)), b(values<bf16>(64, 2)), c(std::size_t{200});
  for (const std::int64_t apart : {64, 65}) {
    cuda::matmul_cublaslt(cuda::Product<bf16>{.a = row_major<const bf16>(a.data(), 8, 8),
                                              .b = row_major<const bf16>(b.data(), 8, 8),
                                              .c = row_major(c.data(), 8, 8),
                                              .batches = 2,
                                              .a_batch = apart,
                                              .b_batch = 0,
                                              .c_batch = apart});
    const auto got = c.host(), left = a.host(), right = b.host();
    for (std::int64_t q = 0; q < 2; ++q) {
      float first = 0;
      for (std::size_t k = 0; k < 8; ++k)
        first += static_cast<float>(left[static_cast<std::size_t>(q * apart) + k]) *
                 static_cast<float>(right[8 * k]);
      CHECK(std::abs(static_cast<float>(got[static_cast<std::size_t>(q * apart)]) - first) <=
            0x1p-8F * std::abs(first) + 1e-5F);
    }
  }
}

namespace {

template <class T>
void check_weight_gradients(std::int64_t n, std::int64_t in, std::int64_t out, Store how) {
  INFO(n << " rows, " << in << " x " << out);
  const auto x = values<T>(n * in, 1), dy = values<T>(n * out, 2), before = values<T>(in * out, 3);
  const OnDevice<T> x_(x), dy_(dy), dw(before), db(static_cast<std::size_t>(out));
  cuda::set_matmul_version(7);
  cuda::weight_gradients<T>(row_major<const T>(dy_.data(), n, out),
                            row_major<const T>(x_.data(), n, in), row_major(dw.data(), out, in),
                            db.span(), how);
  cuda::set_matmul_version(0);
  const std::vector<T> got_dw = dw.host(), got_db = db.host();
  const auto at = [](const std::vector<T>& v, std::int64_t i) {
    return double{static_cast<float>(v[static_cast<std::size_t>(i)])};
  };
  const auto close = [](double got, double want, double product, double size) {
    return std::abs(got - want) <=
           kHalfUlp<T> * (std::abs(want) + std::abs(product)) + kSumError<T> * size;
  };
  for (std::int64_t o = 0; o < out; ++o) {
    for (std::int64_t i = 0; i < in; ++i) {
      double want = how == Store::add ? at(before, o * in + i) : 0, size = std::abs(want);
      for (std::int64_t r = 0; r < n; ++r) {
        const double term = at(dy, r * out + o) * at(x, r * in + i);
        want += term;
        size += std::abs(term);
      }
      INFO("weight " << o << ", " << i << ": " << at(got_dw, o * in + i) << ", not " << want);
      const double product = how == Store::add ? want - at(before, o * in + i) : 0;
      REQUIRE(close(at(got_dw, o * in + i), want, product, size));
    }
    double want = 0, size = 0;
    for (std::int64_t r = 0; r < n; ++r) {
      want += at(dy, r * out + o);
      size += std::abs(at(dy, r * out + o));
    }
    INFO("bias " << o << ": " << at(got_db, o) << ", not " << want);
    REQUIRE(close(at(got_db, o), want, 0, size));
  }
}

}  // namespace

TEST_CASE("cuBLASLt: the gradients of a weight and a bias in one product", "[cuda][cublaslt]") {
  for (const Store how : {Store::replace, Store::add}) {
    check_weight_gradients<bf16>(40, 16, 24, how);
    check_weight_gradients<bf16>(33, 9, 17, how);
    check_weight_gradients<bf16>(1, 1, 1, how);
    check_weight_gradients<bf16>(0, 3, 5, how);
    check_weight_gradients<bf16>(5, 0, 7, how);
    check_weight_gradients<f16>(33, 9, 17, how);
  }
}

namespace {

double gelu(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  const double c = std::sqrt(2 / M_PI), t = std::tanh(c * (x + 0.044715 * x * x * x));
  return (1 + t) / 2 + x / 2 * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}

// A library may use the device's tanh, whose error is 2^-11.
constexpr double kTanhError = 0x1p-11;

// The number of element-wise kernels (map_packs, map_strided) in `work`. Zero on a device.
template <class F>
std::uint64_t elementwise_kernels(const F& work) {
#ifdef RINGSMITH_VGPU
  Stream::current().synchronize();
  (void)vgpu::take_counts();
  work();
  Stream::current().synchronize();
  std::uint64_t runs = 0;
  for (const vgpu::Count& c : vgpu::take_counts())
    if (c.name.find("::map_") != std::string::npos) runs += c.runs;
  return runs;
#else
  work();
  return 0;
#endif
}

struct FeedForward {
  std::int64_t n, in, out;
  std::size_t offset = 0;  // of GELU's arguments from an aligned address, in elements
  bool one_product = true;
};

// linear_gelu(), and gelu_gradient() for the following layer. Each rounds its result, and where the
// library does not compute GELU also the product. So does an H200's cuBLASLt for rows of x that are
// not of a multiple of 8 elements: there it sums parts of k, and a second kernel adds the bias.
template <class T>
void check_gelu(const FeedForward& f) {
  INFO(f.n << " rows, " << f.in << " x " << f.out << ", offset " << f.offset);
  const auto x = values<T>(f.n * f.in, 1), w = values<T>(f.out * f.in, 2),
             bias = values<T>(f.out, 3);
  const OnDevice<T> x_(x), w_(w), bias_(bias);
  const OnDevice<T> argument(static_cast<std::size_t>(f.n * f.out), f.offset),
      y(argument.view().size());
  const auto at = [](const std::vector<T>& v, std::int64_t i) {
    return double{static_cast<float>(v[static_cast<std::size_t>(i)])};
  };
  cuda::set_matmul_version(7);
  const std::uint64_t expected = f.one_product || f.n * f.out == 0 ? 0 : 1;
  const std::uint64_t forward = elementwise_kernels([&] {
    cuda::linear_gelu<T>(row_major<const T>(x_.data(), f.n, f.in),
                         row_major<const T>(w_.data(), f.out, f.in), bias_.view(),
                         row_major(argument.data(), f.n, f.out), row_major(y.data(), f.n, f.out));
  });
  const std::vector<T> got_argument = argument.host(), got_y = y.host();
  for (std::int64_t r = 0; r < f.n; ++r)
    for (std::int64_t o = 0; o < f.out; ++o) {
      double want = at(bias, o), size = std::abs(want);
      for (std::int64_t i = 0; i < f.in; ++i) {
        const double term = at(x, r * f.in + i) * at(w, o * f.in + i);
        want += term;
        size += std::abs(term);
      }
      const double between = f.in % 8 == 0 ? 0 : std::abs(want - at(bias, o));
      const double off = kHalfUlp<T> * (std::abs(want) + between) + kSumError<T> * size;
      INFO("row " << r << ", column " << o << ", argument " << want);
      REQUIRE(std::abs(at(got_argument, r * f.out + o) - want) <= off);
      // GELU's slope is at most 1.13.
      REQUIRE(std::abs(at(got_y, r * f.out + o) - gelu(want)) <=
              1.13 * off + (kHalfUlp<T> + kTanhError) * std::abs(want));
    }

  // dx (n, out) = dy (n, in) w2 (in, out), with the slopes at the arguments.
  const auto dy = values<T>(f.n * f.in, 4), w2 = values<T>(f.in * f.out, 5);
  const OnDevice<T> dy_(dy), w2_(w2), dx(static_cast<std::size_t>(f.n * f.out));
  const std::uint64_t backward = elementwise_kernels([&] {
    cuda::gelu_gradient<T>(
        row_major<const T>(dy_.data(), f.n, f.in), row_major<const T>(w2_.data(), f.in, f.out),
        row_major<const T>(argument.data(), f.n, f.out), row_major(dx.data(), f.n, f.out));
  });
  cuda::set_matmul_version(0);
#ifdef RINGSMITH_VGPU
  CHECK(forward == expected);
  CHECK(backward == expected);
#else
  CHECK(forward + backward + expected <= 1);  // nothing was counted
#endif
  const std::vector<T> got_dx = dx.host();
  for (std::int64_t r = 0; r < f.n; ++r)
    for (std::int64_t o = 0; o < f.out; ++o) {
      double product = 0, size = 0;
      for (std::int64_t i = 0; i < f.in; ++i) {
        const double term = at(dy, r * f.in + i) * at(w2, i * f.out + o);
        product += term;
        size += std::abs(term);
      }
      const double argument_ = at(got_argument, r * f.out + o), slope = gelu_slope(argument_);
      INFO("row " << r << ", column " << o << ", slope " << slope << ", product " << product);
      REQUIRE(std::abs(at(got_dx, r * f.out + o) - product * slope) <=
              1.13 * (2 * kHalfUlp<T> * std::abs(product) + kSumError<T> * size) +
                  kTanhError * (1 + std::abs(argument_)) * std::abs(product));
    }
}

}  // namespace

TEST_CASE("cuBLASLt: GELU with its product, and GELU's slope with the gradient's product",
          "[cuda][cublaslt]") {
  check_gelu<bf16>({40, 24, 48});
  check_gelu<bf16>({33, 9, 16});
  check_gelu<bf16>({1, 1, 8});
  check_gelu<bf16>({0, 3, 8});
  check_gelu<f16>({33, 9, 16});
  check_gelu<bf16>({64, 24, 40, 8});
  // The library wants rows of a multiple of 8 elements and aligned arguments, and some k.
  check_gelu<bf16>({33, 9, 17, 0, false});
  check_gelu<f16>({33, 9, 12, 0, false});
  check_gelu<bf16>({33, 9, 16, 1, false});
  check_gelu<bf16>({5, 0, 8, 0, false});
}

TEST_CASE("GELU of a NaN and of infinities, by cuBLASLt", "[cuda][cublaslt]") {
  std::vector<bf16> x{bf16(1.0F), bf16(NAN), bf16(INFINITY), bf16(-INFINITY)};
  const OnDevice<bf16> x_(x), w(std::vector<bf16>(8, bf16(1.0F))),
      bias(std::vector<bf16>(8, bf16(0.0F)));
  const OnDevice<bf16> argument(std::size_t{32}), y(std::size_t{32});
  cuda::set_matmul_version(7);
  cuda::linear_gelu<bf16>(row_major<const bf16>(x_.data(), 4, 1),
                          row_major<const bf16>(w.data(), 8, 1), bias.view(),
                          row_major(argument.data(), 4, 8), row_major(y.data(), 4, 8));
  cuda::set_matmul_version(0);
  const auto got = y.host();
  CHECK(std::abs(static_cast<float>(got[0]) - 0.8412F) < 0.01F);
  CHECK(std::isnan(static_cast<float>(got[8])));
  CHECK(static_cast<float>(got[16]) == INFINITY);
  CHECK(std::isnan(static_cast<float>(got[24])));  // -infinity times 0
}

#ifdef RINGSMITH_VGPU
TEST_CASE("GELU that cuBLASLt does not compute is a kernel", "[cuda][cublaslt]") {
  for (const auto answer : {vgpu::CublasLtAnswer::none, vgpu::CublasLtAnswer::late}) {
    vgpu::set_cublaslt_answer(answer);
    check_gelu<bf16>({24 + static_cast<std::int64_t>(answer), 11, 32, 0, false});
    vgpu::set_cublaslt_answer(vgpu::CublasLtAnswer::algorithm);
  }
}

TEST_CASE("a bias's gradient that cuBLASLt does not compute is a kernel", "[cuda][cublaslt]") {
  for (const auto answer : {vgpu::CublasLtAnswer::none, vgpu::CublasLtAnswer::late}) {
    vgpu::set_cublaslt_answer(answer);
    check_weight_gradients<bf16>(20 + static_cast<std::int64_t>(answer), 11, 13, Store::add);
    vgpu::set_cublaslt_answer(vgpu::CublasLtAnswer::algorithm);
  }
}

TEST_CASE("a product that the emulated cuBLASLt does not support is computed by another version",
          "[cuda][cublaslt]") {
  using vgpu::CublasLtAnswer;
  std::int64_t k = 19;  // another shape for each answer, because answers are remembered
  for (const auto answer : {CublasLtAnswer::none, CublasLtAnswer::not_supported,
                            CublasLtAnswer::failed_algorithm, CublasLtAnswer::late}) {
    INFO("answer " << static_cast<int>(answer));
    const Case c{20, 12, ++k, 2, 0, false, true, true, Store::add};
    vgpu::set_cublaslt_answer(answer);
    const auto before = vgpu::cublaslt_calls();
    for (int times = 0; times < 2; ++times) {
      check<float>(c);
      check<f16>(c);
      check<bf16>(c);
    }
    const auto after = vgpu::cublaslt_calls();
    CHECK(after.products == before.products);
    // The library is asked for an algorithm once per type.
    CHECK(after.heuristics - before.heuristics == 3);
    CHECK(after.refused_products - before.refused_products ==
          (answer == CublasLtAnswer::late ? 3 : 0));
    vgpu::set_cublaslt_answer(CublasLtAnswer::algorithm);
  }
  const auto before = vgpu::cublaslt_calls();
  check<bf16>({20, 12, ++k});
  check<bf16>({20, 12, k});
  CHECK(vgpu::cublaslt_calls().products - before.products == 2);
  CHECK(vgpu::cublaslt_calls().heuristics - before.heuristics == 1);
}
#endif
