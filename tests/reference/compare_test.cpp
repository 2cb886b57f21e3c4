// Tests the comparison itself, which must reject wrong results.
#include "tests/reference/compare.hpp"

#include <filesystem>
#include <fstream>
#include <limits>

#include "tests/reference/data.hpp"
#include "tests/reference/npy.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::reference;

TEST_CASE("the comparison refuses NaN, infinities, other shapes and what is out of tolerance") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor want = tensor_f32({1, 2, 3}, {3});
  CHECK(difference(tensor_f32({1, 2, 3}, {3}), want, 0) == "");
  CHECK(difference(tensor_f32({1, 2, 3.5}, {3}), want, 0.5) == "");
  CHECK_THAT(difference(tensor_f32({1, 2, 3.5}, {3}), want, 0.49), ContainsSubstring("worst at 2"));
  CHECK_THAT(difference(tensor_f32({1, nan, 3}, {3}), want, 1e9), ContainsSubstring("worst at 1"));
  CHECK(difference(want, tensor_f32({1, nan, 3}, {3}), 1e9) != "");
  CHECK(difference(tensor_f32({nan}, {1}), tensor_f32({nan}, {1}), 1e9) != "");
  CHECK(difference(tensor_f32({inf}, {1}), tensor_f32({1}, {1}), 1e9) != "");
  CHECK_THAT(difference(tensor_f32({1, 2, 3}, {3, 1}), want, 1), ContainsSubstring("shape [3, 1]"));
  CHECK(difference(Tensor{}, want, 1) != "");
  CHECK(difference(want.to(DType::f64), want, 1) != "");
}

TEST_CASE(
    "the tolerance is twice torch's error or a millionth of the largest magnitude, and ulps") {
  const Tensor want = tensor_f32({-8, 2}, {2});
  const double ulps = 8.0 * 4 / (1 << 23);
  CHECK(tolerance(want, 1e-3) == 2e-3 + ulps);
  CHECK(tolerance(want, 0) == 8e-6 + ulps);
  CHECK(tolerance(want, 0, tensor_f32({100, 100}, {2})) == 8e-6 + ulps);  // nothing was summed
  CHECK(tolerance(want, 0, tensor_f32({16, 1, 1}, {3})) == 8e-6 + 2 * ulps);
  CHECK(tolerance(tensor_f32({}, {0}), 0) == 0);
}

TEST_CASE("the npy reader reads NumPy's bytes and names a broken file") {
  const std::filesystem::path file =
      std::filesystem::path(RINGSMITH_BINARY_DIR) / "reference_npy_test.npy";
  const std::string header =
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }" + std::string(18, ' ') + "\n";
  const float values[2] = {1.5F, -3};
  const auto write = [&](const std::string& head, std::size_t bytes) {
    std::ofstream out(file, std::ios::binary);
    out << "\x93NUMPY" << '\1' << '\0' << static_cast<char>(head.size()) << '\0' << head;
    out.write(reinterpret_cast<const char*>(values), static_cast<std::streamsize>(bytes));
  };
  write(header, 8);
  CHECK(read_npy<float>(file).shape == Shape{2, 1});
  CHECK(read_npy<float>(file).values == std::vector<float>{1.5F, -3});
  CHECK_THROWS_WITH(read_npy<std::int64_t>(file), ContainsSubstring("'<f4', expected '<i8'"));
  write(header, 7);
  CHECK_THROWS_WITH(read_npy<float>(file), ContainsSubstring("7 bytes of values"));
  write("{'descr': '<f4', 'shape': (2, 1)}", 8);
  CHECK_THROWS_WITH(read_npy<float>(file), ContainsSubstring("fortran_order"));
  std::ofstream(file, std::ios::binary) << "hello";
  CHECK_THROWS_WITH(read_npy<float>(file), ContainsSubstring("no npy file"));
  std::filesystem::remove(file);
  CHECK_THROWS_WITH(read_npy<float>(file), ContainsSubstring("cannot read"));
}

TEST_CASE("the set holds at least one part that is known here") {
  std::size_t parts = 0;
  for (const char* name :
       {"ops", "optim", "randperm.json", "sampler.json", "buckets.json", "ddp.json", "strict"})
    parts += std::filesystem::exists(directory() / name) ? 1 : 0;
  CHECK(parts > 0);
}
