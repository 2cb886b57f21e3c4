// Compares kernels::cuda::reduce with the CPU's oracle.
#include "kernels/reduce.hpp"

#include <cstring>
#include <random>

#include "tests/kernels/cuda/support.hpp"
#include "tests/support/same_value.hpp"

using namespace ringsmith;
using namespace ringsmith::kernels;
using ringsmith::testing::OnDevice;

namespace {

// Returns arbitrary bits for integers, and floats of different magnitudes, some of which overflow
// f16 to infinity. None is NaN.
template <class T>
std::vector<T> random_values(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<T> values(n);
  for (T& x : values) {
    if constexpr (std::is_integral_v<T>)
      x = static_cast<T>(std::uint64_t{random()} << 32 | random());
    else
      x = static_cast<T>(std::ldexp(static_cast<float>(random() % 4000) - 2000.0F,
                                    static_cast<int>(random() % 30) - 20));
  }
  return values;
}

struct Shape {
  std::size_t sources, destinations, count, byte_offset;
  bool scaled;
};

// True if the results equal the oracle's. Sources and destinations start byte_offset bytes after an
// aligned address.
template <class T>
bool matches_oracle(Reduction op, const Shape& shape) {
  const double scale = 1.0 / 3;
  std::vector<std::vector<T>> inputs;
  inputs.reserve(shape.sources);  // on_host has pointers into it
  std::vector<std::unique_ptr<OnDevice<std::byte>>> in, out;
  std::vector<ReduceSource> on_host, on_device;
  std::vector<std::byte*> to;
  const std::size_t bytes = shape.count * sizeof(T);
  for (std::size_t s = 0; s < shape.sources; ++s) {
    inputs.push_back(random_values<T>(shape.count, static_cast<unsigned>(s)));
    const auto* data = reinterpret_cast<const std::byte*>(inputs.back().data());
    in.push_back(std::make_unique<OnDevice<std::byte>>(std::vector<std::byte>(data, data + bytes),
                                                       shape.byte_offset));
    const bool scaled = shape.scaled && s % 2 == 0;
    on_host.push_back({reinterpret_cast<const std::byte*>(inputs.back().data()), scaled});
    on_device.push_back({in.back()->data(), scaled});
  }
  for (std::size_t d = 0; d < shape.destinations; ++d) {
    out.push_back(std::make_unique<OnDevice<std::byte>>(bytes, shape.byte_offset));
    to.push_back(out.back()->data());
  }
  std::vector<std::byte> expected(bytes);
  std::byte* const expect = expected.data();
  cpu::reduce_oracle(dtype_of<T>(), op, on_host, {&expect, 1}, Elements(shape.count), scale);
  cuda::reduce(dtype_of<T>(), op, on_device, to, Elements(shape.count), scale);
  bool same = true;
  for (const auto& o : out) {
    const std::vector<std::byte> got = o->host();
    for (std::size_t i = 0; i < shape.count; ++i) {
      T want;
      std::memcpy(&want, &expected[i * sizeof(T)], sizeof(T));
      same = same && test::same_value(&got[i * sizeof(T)], want);
    }
  }
  return same;
}

}  // namespace

TEMPLATE_TEST_CASE("a device reduces to the bits of the oracle", "[vgpu]", float, f16, bf16, double,
                   std::int32_t, std::int64_t, std::uint8_t) {
  for (const auto op : {Reduction::sum, Reduction::prod, Reduction::min, Reduction::max})
    for (const Shape& shape :
         {Shape{1, 1, 1000, 0, false}, Shape{2, 1, 1, 0, false}, Shape{2, 2, 1031, 0, false},
          Shape{3, 1, 4097, 1, false}, Shape{5, 3, 100, sizeof(TestType), false},
          Shape{64, 64, 17, 0, false}, Shape{2, 67, 33, 0, false}}) {
      INFO("reduction " << static_cast<int>(op) << ", " << shape.sources << " sources, "
                        << shape.destinations << " destinations, " << shape.count << " elements");
      CHECK(matches_oracle<TestType>(op, shape));
      if constexpr (!std::is_integral_v<TestType>) {
        Shape average = shape;
        average.scaled = true;
        CHECK(matches_oracle<TestType>(op, average));
      }
    }
}

TEST_CASE("a reduction on a device may be in place, empty, or of bool values that are only copied",
          "[vgpu]") {
  const OnDevice<float> a({1, 2, 3, 4, 5}), b({10, 20, 30, 40, 50});
  const auto bytes = [](const OnDevice<float>& x) {
    return reinterpret_cast<std::byte*>(x.data());
  };
  const ReduceSource both[] = {{bytes(a), false}, {bytes(b), false}};
  std::byte* const to = bytes(a);
  cuda::reduce(DType::f32, Reduction::sum, both, {&to, 1}, Elements(5));
  CHECK(a.host() == std::vector<float>{11, 22, 33, 44, 55});
  cuda::reduce(DType::f32, Reduction::sum, both, {&to, 1}, Elements(0));
  cuda::reduce(DType::f32, Reduction::sum, both, {}, Elements(5));
  CHECK(a.host() == std::vector<float>{11, 22, 33, 44, 55});
  cuda::reduce(DType::boolean, Reduction::max, {both + 1, 1}, {&to, 1}, Elements(20));
  CHECK(a.host() == b.host());
  CHECK_THROWS_AS(cuda::reduce(DType::boolean, Reduction::max, both, {&to, 1}, Elements(20)),
                  UsageError);
  CHECK_THROWS_AS(cuda::reduce(DType::f32, Reduction::max, {}, {&to, 1}, Elements(5)), UsageError);
}

TEST_CASE("NaN reaches the result of a device's minimum and maximum from either side", "[vgpu]") {
  const float nan = std::nanf("");
  const OnDevice<float> a({nan, 1, 2}), b({1, nan, 3}), out(3);
  const auto bytes = [](const OnDevice<float>& x) {
    return reinterpret_cast<std::byte*>(x.data());
  };
  const ReduceSource both[] = {{bytes(a), false}, {bytes(b), false}};
  std::byte* const to = bytes(out);
  for (const auto op : {Reduction::sum, Reduction::prod, Reduction::min, Reduction::max}) {
    cuda::reduce(DType::f32, op, both, {&to, 1}, Elements(3));
    const std::vector<float> got = out.host();
    CHECK(got[0] != got[0]);
    CHECK(got[1] != got[1]);
    CHECK(got[2] == got[2]);
  }
}
