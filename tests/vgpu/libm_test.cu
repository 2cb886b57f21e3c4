// The mathematical functions in kernels: the host's, or up to VGPU_LIBM_ULPS away from them. The
// variable is read once per process, so the hidden case runs in a separate process.
#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"
#include "tests/vgpu/support.hpp"

using namespace ringsmith;
using ringsmith::testing::DeviceArray;
using ringsmith::testing::TestStream;

namespace {

// Each result of a float argument is stored as a double, which holds it exactly.
constexpr int kFloats = 7, kFunctions = 10;
__host__ __device__ void compute(float x, double* out) {
  const double wide = x;
  out[0] = expf(x);
  out[1] = tanhf(x);
  out[2] = erff(x);
  out[3] = logf(fabsf(x));
  out[4] = powf(fabsf(x), 1.7F);
#if defined(RINGSMITH_VGPU) || defined(__CUDA_ARCH__)
  out[5] = __expf(x);
#else
  out[5] = expf(x);
#endif
  out[6] = rsqrtf(fabsf(x));
  out[7] = exp(wide);
  out[8] = tanh(wide);
  out[9] = sqrtf(fabsf(x));  // rounded correctly everywhere
}

__global__ void compute_all(const float* x, int n, double* out) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) compute(x[i], out + i * kFunctions);
}

std::vector<float> arguments() {
  std::vector<float> x;
  for (int i = -600; i <= 600; ++i) x.push_back(static_cast<float>(i) / 150);
  for (const float end : {std::numeric_limits<float>::infinity(), 40.0F, 1e-20F}) {
    x.push_back(end);
    x.push_back(-end);
  }
  return x;
}

std::vector<double> in_kernel(const std::vector<float>& x) {
  const TestStream stream;
  const DeviceArray<float> in(x, stream.get());
  const DeviceArray<double> out(x.size() * kFunctions);
  launch(compute_all, dim3(static_cast<unsigned>(x.size() + 63) / 64), 64, 0, stream.get(),
         in.data(), static_cast<int>(x.size()), out.data());
  return out.host(stream.get());
}

// How much larger a's magnitude is, in units in the last place.
std::int64_t ulps_between(double a, double b, bool is_float) {
  a = std::abs(a), b = std::abs(b);
  if (!is_float) return std::bit_cast<std::int64_t>(a) - std::bit_cast<std::int64_t>(b);
  return std::bit_cast<std::int32_t>(static_cast<float>(a)) -
         std::bit_cast<std::int32_t>(static_cast<float>(b));
}

std::string self() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

}  // namespace

TEST_CASE("without VGPU_LIBM_ULPS a kernel's functions are the host's") {
  const std::vector<float> x = arguments();
  const std::vector<double> got = in_kernel(x);
  std::vector<double> want(got.size());
  for (std::size_t i = 0; i < x.size(); ++i) compute(x[i], &want[i * kFunctions]);
  for (std::size_t i = 0; i < got.size(); ++i) REQUIRE((got[i] == want[i] || got[i] != got[i]));
}

TEST_CASE("another libm", "[.][libm]") {
  constexpr std::int64_t kMost = 3;  // as in the next test case
  const std::vector<float> x = arguments();
  const std::vector<double> got = in_kernel(x), again = in_kernel(x);
  for (int f = 0; f < kFunctions; ++f) {
    INFO("function " << f);
    std::int64_t least = 0, most = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      double want[kFunctions];
      compute(x[i], want);  // the host keeps its functions
      REQUIRE(want[0] == std::exp(x[i]));
      const double value = got[i * kFunctions + f];
      INFO(f << " of " << x[i] << ": " << value << ", the host " << want[f]);
      if (want[f] != want[f]) continue;
      REQUIRE(value == again[i * kFunctions + f]);
      if (want[f] == 0 || std::abs(want[f]) == 1 || std::isinf(want[f])) {
        REQUIRE(value == want[f]);
        continue;
      }
      REQUIRE((std::abs(value) > 1) == (std::abs(want[f]) > 1 && std::abs(value) != 1));
      const std::int64_t ulps = ulps_between(value, want[f], f < kFloats || f == 9);
      least = std::min(least, ulps);
      most = std::max(most, ulps);
    }
    CHECK(most == (f == 9 ? 0 : kMost));
    CHECK(least == (f == 9 ? 0 : -kMost));
  }
}

TEST_CASE("VGPU_LIBM_ULPS moves a kernel's results, not the host's") {
  const auto run = testing::run_program({"env", "VGPU_LIBM_ULPS=3", self(), "[libm]"});
  INFO(run.out << run.err);
  CHECK(run.exit_code == 0);
  CHECK_THAT(run.out, ContainsSubstring("in 1 test case"));
}
