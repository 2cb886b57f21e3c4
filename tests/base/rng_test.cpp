// Compares the generator with numbers from PyTorch 1.13 (scalar build, seed given in each case).
#include "runtime/base/rng.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "runtime/base/error.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;

namespace {

// FNV-1a over the bytes of each value: one number for hundreds of exact values.
template <class T>
std::uint64_t hash_of(std::span<const T> values) {
  std::uint64_t h = 0xcbf29ce484222325ULL;
  for (const T& v : values) {
    unsigned char bytes[sizeof(T)];
    std::memcpy(bytes, &v, sizeof(T));
    for (unsigned char b : bytes) h = (h ^ b) * 0x100000001b3ULL;
  }
  return h;
}

std::vector<float> normals(std::size_t n, Generator& g, double mean = 0, double stddev = 1) {
  std::vector<float> out(n);
  fill_normal(out, mean, stddev, g);
  return out;
}

}  // namespace

TEST_CASE("randperm is PyTorch's, index for index") {
  using Order = std::vector<std::int64_t>;
  const auto perm = [](std::uint64_t seed, std::int64_t n) {
    Generator g(seed);
    return randperm(n, g);
  };
  CHECK(perm(0, 10) == Order{4, 1, 7, 5, 3, 9, 0, 8, 6, 2});
  CHECK(perm(1, 10) == Order{5, 6, 1, 2, 0, 8, 9, 3, 7, 4});
  CHECK(perm(42, 10) == Order{2, 6, 1, 8, 4, 5, 0, 9, 3, 7});
  CHECK(perm(static_cast<std::uint64_t>(-3), 7) == Order{6, 0, 3, 2, 5, 4, 1});
  CHECK(perm(0, 3) == Order{2, 0, 1});
  CHECK(perm(0, 1) == Order{0});
  CHECK(perm(0, 0).empty());
  // Only the low 32 bits of a seed are used.
  CHECK(perm((1ULL << 32) + 5, 100) == perm(5, 100));
  CHECK(perm(6, 100) != perm(5, 100));
  CHECK_THROWS_AS(perm(0, -1), UsageError);
}

TEST_CASE("one stream of mixed draws keeps PyTorch's order of words") {
  Generator g(7);
  // The third draw leaves half a pair, which the next draw must use first.
  CHECK(normals(3, g) == std::vector<float>{-0x1.2ca2e8p-3F, 0x1.92811cp-1F, 0x1.e4c5cep-1F});
  CHECK(normals(2, g) == std::vector<float>{-0x1.1d45a6p+0F, 0x1.b0d7a0p+0F});
  // For 17 normals, a block of 16 is drawn, and the last 16 are drawn again.
  const std::vector<float> block = normals(17, g);
  CHECK(block.front() == 0x1.380ce8p-1F);
  CHECK(block[7] == 0x1.263018p+1F);
  CHECK(block[9] == 0x1.edee40p-2F);
  CHECK(block.back() == -0x1.0bdd84p-2F);
  std::vector<float> uniform(4);
  fill_uniform(uniform, -2, 3, g);
  CHECK(uniform ==
        std::vector<float>{0x1.9337d8p-1F, 0x1.12d080p-4F, 0x1.6b1600p-3F, 0x1.af2f14p+0F});
  for (int expected : {12, 4, 14, 2, 3, -5}) CHECK(randint(-5, 20, g) == expected);
  for (std::int64_t expected : {359355675568, 6303950528, 619355110774})
    CHECK(randint(0, 1LL << 40, g) == expected);
  CHECK(g.uniform_double() == 0x1.c2f3efb45aabap-2);
  CHECK(g.uniform_double() == 0x1.babac5f549a5cp-1);
  CHECK(normals(2, g, 1, 0.02) == std::vector<float>{0x1.f6d644p-1F, 0x1.022a5ep+0F});
  const std::vector<float> ragged = normals(33, g, 1, 0.02);
  CHECK(ragged[14] == 0x1.07107ep+0F);
  CHECK(ragged[17] == 0x1.fbd45ep-1F);
  CHECK(ragged[32] == 0x1.084280p+0F);
}

TEST_CASE("a thousand normals and a Linear's initial weights equal PyTorch's bit for bit") {
  // torch.manual_seed(1000); x = randn(50, 16); y = randn(50, 5)
  Generator g(1000);
  CHECK(hash_of<float>(normals(800, g)) == 0x732e9fe5d4cc88e3ULL);
  CHECK(hash_of<float>(normals(250, g)) == 0x78db7d4f377f38b8ULL);
  // torch.manual_seed(100); Linear(16, 32): uniform in +-1/sqrt(16), weight first, then bias
  g.manual_seed(100);
  std::vector<float> weight(512);
  std::vector<float> bias(32);
  fill_uniform(weight, -0.25, 0.25, g);
  fill_uniform(bias, -0.25, 0.25, g);
  CHECK(hash_of<float>(weight) == 0x84a3a2adb2eb781fULL);
  CHECK(hash_of<float>(bias) == 0x665ef8dd3725e9eaULL);
}

TEST_CASE("a generator restored from its state goes on exactly as the saved one") {
  Generator g(3);
  (void)normals(5, g);  // an odd count: half a pair is pending
  const std::string state = g.state();
  const std::vector<float> expected = normals(40, g);
  const std::vector<float> pending = normals(3, g);
  Generator restored;
  restored.set_state(state);
  CHECK(restored.seed() == 3);
  CHECK(normals(40, restored) == expected);
  CHECK(normals(3, restored) == pending);
  for (const std::string& bad : {std::string(), std::string("1 2 3"), state + " 7"})
    CHECK_THROWS_AS(restored.set_state(bad), UsageError);
  CHECK(restored.state() == g.state());
}

TEST_CASE("the process's random state comes back: the generator's and every device's counters") {
  manual_seed(5);
  (void)default_generator().random32();
  (void)take_device_counters(0, 7);
  (void)take_device_counters(3, 11);
  const std::string state = get_rng_state();
  const std::uint32_t drawn = default_generator().random32();
  manual_seed(6);
  set_rng_state(state);
  CHECK(get_rng_state() == state);
  CHECK(default_generator().random32() == drawn);
  CHECK(take_device_counters(0, 1).first == 7);
  CHECK(take_device_counters(3, 1).first == 11);
  CHECK(take_device_counters(1, 1).first == 0);

  const std::string now = get_rng_state(), generator = state.substr(0, state.find(';'));
  for (const std::string& bad : {std::string(), generator, generator + ";", generator + "; 5 0",
                                 generator + "; 5 x 1", state + "; 1", std::string("1 2; 5")})
    CHECK_THROWS_AS(set_rng_state(bad), UsageError);
  CHECK(get_rng_state() == now);
  manual_seed(Generator::kDefaultSeed);
}

TEST_CASE("draws stay in range and randint refuses an empty range") {
  Generator g(11);
  std::vector<float> x(100'003);
  fill_uniform(x, 0, 1, g);
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  CHECK(*low >= 0.0F);
  CHECK(*high < 1.0F);
  CHECK_THROWS_AS(randint(3, 3, g), UsageError);
  CHECK(randint(-1, 0, g) == -1);
  CHECK(default_generator().seed() == Generator::kDefaultSeed);
}
