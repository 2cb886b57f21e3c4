// f16 and bf16 arithmetic in kernels must be rounded once, to nearest even, as on the device.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <limits>
#include <random>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/vgpu/support.hpp"

using namespace ringsmith;
using ringsmith::testing::DeviceArray;
using ringsmith::testing::TestStream;

namespace {

template <class T>
struct Results {
  T sum, difference, product, quotient, fused;
};

__device__ __half fused(__half a, __half b, __half c) { return __hfma(a, b, c); }
__device__ __nv_bfloat16 fused(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  // There is no such instruction, so use the closest one, which rounds twice.
  return __float2bfloat16(fmaf(__bfloat162float(a), __bfloat162float(b), __bfloat162float(c)));
#else
  return __hfma(a, b, c);
#endif
}

template <class T>
__global__ void arithmetic(const T* x, int n, Results<T>* out) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i + 2 >= n) return;
  const T a = x[i], b = x[i + 1], c = x[i + 2];
  out[i] = {__hadd(a, b), __hsub(a, b), __hmul(a, b), __hdiv(a, b), fused(a, b, c)};
}

float value(__half h) { return __half2float(h); }
float value(__nv_bfloat16 h) { return __bfloat162float(h); }

// Rounds to the nearest number with p digits and units of at least 2^least_exponent, in the slow,
// obvious way. long double holds the exact sums and products of such numbers.
float round_to(long double exact, int p, int least_exponent, float overflow) {
  if (exact == 0 || std::isnan(exact) || std::isinf(exact)) return static_cast<float>(exact);
  int exponent = 0;
  (void)std::frexp(exact, &exponent);
  const int unit = std::max(exponent - p, least_exponent);
  const long double rounded = std::nearbyint(std::ldexp(exact, -unit));  // ties to even
  const long double result = std::ldexp(rounded, unit);
  if (std::fabs(result) >= overflow)
    return std::copysign(std::numeric_limits<float>::infinity(), static_cast<float>(exact));
  return static_cast<float>(result);
}

bool same(float got, float want) {
  if (std::isnan(want)) return std::isnan(got);
  return got == want && std::signbit(got) == std::signbit(want);
}

template <class T>
void check(const std::vector<T>& x, int p, int least_exponent, float overflow) {
  TestStream stream;
  DeviceArray<T> in(x, stream.get());
  DeviceArray<Results<T>> out(x.size());
  const int n = static_cast<int>(x.size());
  launch(arithmetic<T>, (n + 255) / 256, 256, 0, stream.get(), static_cast<const T*>(in.data()), n,
         out.data());
  const auto got = out.host(stream.get());
  int wrong = 0;
  for (std::size_t i = 0; i + 2 < x.size(); ++i) {
    const long double a = value(x[i]), b = value(x[i + 1]), c = value(x[i + 2]);
    const auto want = [&](long double exact) {
      return round_to(exact, p, least_exponent, overflow);
    };
    wrong += !same(value(got[i].sum), want(a + b));
    wrong += !same(value(got[i].difference), want(a - b));
    wrong += !same(value(got[i].product), want(a * b));
    // A sum fits in long double's 64 bits only if the magnitudes of its terms are close enough.
    const bool near = c == 0 || a * b == 0 || std::fabs(std::log2(std::fabs(a * b / c))) < 40;
    if (near || !std::isfinite(a * b + c))
      wrong += !same(value(got[i].fused), want(std::fma(a, b, c)));
  }
  CHECK(wrong == 0);
}

std::vector<std::uint16_t> codes() {
  std::mt19937 random(1);
  std::vector<std::uint16_t> bits(20'000);
  for (auto& b : bits) b = static_cast<std::uint16_t>(random());
  // The first half gets nearby exponents, so that sums round and cancel.
  for (std::size_t i = 0; i < bits.size() / 2; ++i)
    bits[i] = static_cast<std::uint16_t>((bits[i] & 0x8fffU) | 0x3000U);
  return bits;
}

}  // namespace

TEST_CASE("f16 arithmetic is rounded once, to nearest even") {
  std::vector<__half> x;
  for (const auto b : codes()) x.push_back(__ushort_as_half(b));
  check(x, 11, -24, 65520.0F);
}

TEST_CASE("bf16 arithmetic is rounded once, to nearest even") {
  std::vector<__nv_bfloat16> x;
  for (const auto b : codes()) x.push_back(__ushort_as_bfloat16(b));
  check(x, 8, -133, std::numeric_limits<float>::infinity());
}

TEST_CASE("conversions from float and double round once") {
  CHECK(value(__float2half(65519.0F)) == 65504.0F);
  CHECK(std::isinf(value(__float2half(65520.0F))));
  CHECK(value(__float2half(0x1p-25F)) == 0.0F);
  CHECK(value(__float2half(0x1.000002p-25F)) == 0x1p-24F);
  // Just above the middle of 1 and its successor, and exactly there if rounded to float first.
  CHECK(value(__double2half(1.0 + 0x1p-11 + 0x1p-40)) == 1.0F + 0x1p-10F);
  CHECK(value(__double2bfloat16(1.0 + 0x1p-8 + 0x1p-40)) == 1.0F + 0x1p-7F);
}
