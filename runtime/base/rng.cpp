// PyTorch's CPU generator, draw for draw.
#include "runtime/base/rng.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <mutex>
#include <numbers>
#include <numeric>
#include <sstream>

#include "runtime/base/error.hpp"

namespace ringsmith {

void Generator::manual_seed(std::uint64_t seed) {
  seed_ = seed;
  engine_.seed(static_cast<std::uint32_t>(seed));  // the high half of the seed is ignored
  has_cached_normal_ = false;
}

std::uint32_t Generator::random32() { return static_cast<std::uint32_t>(engine_()); }

std::uint64_t Generator::random64() {
  const std::uint64_t high = random32();
  return high << 32 | random32();
}

float Generator::uniform_float() { return static_cast<float>(random32() & 0xffffffU) * 0x1p-24F; }

double Generator::uniform_double() {
  return static_cast<double>(random64() & ((1ULL << 53) - 1)) * 0x1p-53;
}

std::string Generator::state() const {
  std::ostringstream out;
  out << engine_ << ' ' << seed_ << ' ' << has_cached_normal_ << ' '
      << std::bit_cast<std::uint64_t>(cached_normal_);
  return out.str();
}

void Generator::set_state(const std::string& state) {
  std::istringstream in(state);
  Generator read;
  std::uint64_t cached = 0;
  in >> read.engine_ >> read.seed_ >> read.has_cached_normal_ >> cached;
  require(!in.fail() && (in >> std::ws).eof(),
          "generator state of " + std::to_string(state.size()) +
              " characters is not one that Generator::state() wrote");
  read.cached_normal_ = std::bit_cast<double>(cached);
  *this = read;
}

Generator& default_generator() {
  static Generator generator;
  return generator;
}

namespace {

// The position in each device's random stream.
class DeviceCounters {
 public:
  static DeviceCounters& instance() {
    static DeviceCounters counters;
    return counters;
  }
  void restart(std::uint64_t seed) {
    const std::scoped_lock lock(mutex_);
    seed_ = seed;
    next_.clear();
  }
  CounterRange take(int device, std::uint64_t count) {
    constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;  // gives each device a different seed
    const std::scoped_lock lock(mutex_);
    const CounterRange start{seed_ + static_cast<std::uint64_t>(device) * kGolden, 0};
    CounterRange& next = next_.try_emplace(device, start).first->second;
    const CounterRange range = next;
    next.first += count;
    return range;
  }
  void set(int device, const CounterRange& place) {
    const std::scoped_lock lock(mutex_);
    next_.insert_or_assign(device, place);
  }
  // Returns "SEED DEVICE SEED NEXT DEVICE SEED NEXT...". Each device's seed is stored, because
  // set() may change it.
  [[nodiscard]] std::string state() {
    const std::scoped_lock lock(mutex_);
    std::string out = std::to_string(seed_);
    for (const auto& [device, next] : next_)
      out += " " + std::to_string(device) + " " + std::to_string(next.seed) + " " +
             std::to_string(next.first);
    return out;
  }
  // Returns false, without any change, if the text is not from state().
  bool set_state(const std::string& state) {
    std::istringstream in(state);
    std::uint64_t seed = 0;
    CounterRange place{};
    std::map<int, CounterRange> next;
    if (!(in >> seed)) return false;
    for (int device = 0; in >> device; next[device] = place)
      if (!(in >> place.seed >> place.first)) return false;
    if (!in.eof()) return false;
    const std::scoped_lock lock(mutex_);
    seed_ = seed;
    next_ = std::move(next);
    return true;
  }

 private:
  std::mutex mutex_;
  std::uint64_t seed_ = Generator::kDefaultSeed;
  std::map<int, CounterRange> next_;
};

}  // namespace

CounterRange take_device_counters(int device, std::uint64_t count) {
  return DeviceCounters::instance().take(device, count);
}

void set_device_counters(int device, const CounterRange& place) {
  DeviceCounters::instance().set(device, place);
}

void manual_seed(std::uint64_t seed) {
  default_generator().manual_seed(seed);
  DeviceCounters::instance().restart(seed);
}

// Returns "GENERATOR; SEED DEVICE SEED NEXT DEVICE SEED NEXT..."
std::string get_rng_state() {
  return default_generator().state() + "; " + DeviceCounters::instance().state();
}

void set_rng_state(const std::string& state) {
  const std::size_t split = state.find(';');
  Generator generator;
  generator.set_state(state.substr(0, split));
  require(
      split != std::string::npos && DeviceCounters::instance().set_state(state.substr(split + 1)),
      "the text of " + std::to_string(state.size()) +
          " characters is not a state that get_rng_state() wrote");
  default_generator() = generator;
}

void fill_uniform(std::span<float> out, double low, double high, Generator& g) {
  const auto a = static_cast<float>(low);
  const auto b = static_cast<float>(high);
  for (float& x : out) x = g.uniform_float() * (b - a) + a;
}

namespace {

constexpr std::size_t kBlock = 16;

// Box-Muller in float on 16 uniforms: element j pairs with element j + 8.
void normal_block(float* a, float mean, float stddev) {
  for (int j = 0; j < 8; ++j) {
    const float u1 = 1 - a[j];  // (0, 1], so that the logarithm is finite
    const float u2 = a[j + 8];
    const float radius = std::sqrt(-2 * std::log(u1));
    const auto theta = static_cast<float>(2 * std::numbers::pi * static_cast<double>(u2));
    a[j] = radius * std::cos(theta) * stddev + mean;
    a[j + 8] = radius * std::sin(theta) * stddev + mean;
  }
}

}  // namespace

// Two algorithms, chosen by length as in PyTorch. Short spans draw pairs in double, and the
// generator keeps the second value of a pair for the next element. Spans of 16 or more are filled
// with uniforms and transformed in blocks; an incomplete last block redraws the *last 16* elements.
void fill_normal(std::span<float> out, double mean, double stddev, Generator& g) {
  if (out.size() >= kBlock) {
    for (float& x : out) x = g.uniform_float();
    const auto m = static_cast<float>(mean);
    const auto s = static_cast<float>(stddev);
    for (std::size_t i = 0; i + kBlock <= out.size(); i += kBlock) normal_block(&out[i], m, s);
    if (out.size() % kBlock != 0) {
      float* last = out.data() + (out.size() - kBlock);
      std::generate_n(last, kBlock, [&g] { return g.uniform_float(); });
      normal_block(last, m, s);
    }
    return;
  }
  for (float& x : out) {
    double z = g.cached_normal_;
    if (!g.has_cached_normal_) {
      const double u1 = g.uniform_double();
      const double u2 = g.uniform_double();
      const double radius = std::sqrt(-2 * std::log1p(-u2));
      const double theta = 2 * std::numbers::pi * u1;
      g.cached_normal_ = radius * std::sin(theta);
      z = radius * std::cos(theta);
    }
    g.has_cached_normal_ = !g.has_cached_normal_;
    x = static_cast<float>(z * stddev + mean);
  }
}

// Fisher-Yates from the front, one word per position except the last; the modulo bias is PyTorch's.
std::vector<std::int64_t> randperm(std::int64_t n, Generator& g) {
  require(n >= 0, "randperm: n must not be negative, got " + std::to_string(n));
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  for (std::size_t i = 0; i + 1 < order.size(); ++i)
    std::swap(order[i], order[i + g.random32() % (order.size() - i)]);
  return order;
}

std::int64_t randint(std::int64_t low, std::int64_t high, Generator& g) {
  require(low < high, "randint: empty range [" + std::to_string(low) + ", " + std::to_string(high) +
                          "); high must exceed low");
  const std::uint64_t range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  const std::uint64_t word = range < (1ULL << 32) ? g.random32() : g.random64();
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + word % range);
}

}  // namespace ringsmith
