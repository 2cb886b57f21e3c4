// Random numbers that match PyTorch's CPU generator bit for bit.
//
// The engine is MT19937, seeded with the low 32 bits of the seed. The order of draws is part of the
// contract: tests/reference compares randperm, uniform and normal with PyTorch's, index by index.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace ringsmith {

class Generator {
 public:
  static constexpr std::uint64_t kDefaultSeed = 67280421310721ULL;

  explicit Generator(std::uint64_t seed = kDefaultSeed) { manual_seed(seed); }
  void manual_seed(std::uint64_t seed);
  [[nodiscard]] std::uint64_t seed() const { return seed_; }

  std::uint32_t random32();
  std::uint64_t random64();  // the first word is the high half
  float uniform_float();     // [0, 1): one word, low 24 bits
  double uniform_double();   // [0, 1): two words, low 53 bits

  // The state as text, for checkpoints: the standard library's format of mt19937, then the seed and
  // the cached normal.
  [[nodiscard]] std::string state() const;
  void set_state(const std::string& state);  // UsageError if it cannot be parsed

 private:
  friend void fill_normal(std::span<float>, double, double, Generator&);
  std::mt19937 engine_;
  std::uint64_t seed_ = 0;
  bool has_cached_normal_ = false;
  double cached_normal_ = 0;
};

// The process's default generator. Not thread-safe: a rank has one training thread.
Generator& default_generator();
void manual_seed(std::uint64_t seed);  // seeds the default generator and the devices' counters
// The state of the default generator and of the devices' counters, as text. Checkpoints store it
// for each rank.
[[nodiscard]] std::string get_rng_state();
void set_rng_state(const std::string& state);  // UsageError if get_rng_state() did not write it

// Random numbers on a GPU are computed from a counter (kernels/dropout.hpp), not from a large
// state. Each device has its own counter, so that threads that drive different devices do not
// affect each other's numbers. manual_seed() seeds all counters.
struct CounterRange {
  std::uint64_t seed;   // different for each device
  std::uint64_t first;  // [first, first + count) is reserved for the caller
};
[[nodiscard]] CounterRange take_device_counters(int device, std::uint64_t count);
// Sets the device's counter back to the start of this range. take_device_counters(device, 0)
// returns the current state, to be restored later.
void set_device_counters(int device, const CounterRange& place);

void fill_uniform(std::span<float> out, double low, double high, Generator& g);
void fill_normal(std::span<float> out, double mean, double stddev, Generator& g);
[[nodiscard]] std::vector<std::int64_t> randperm(std::int64_t n, Generator& g);
[[nodiscard]] std::int64_t randint(std::int64_t low, std::int64_t high,
                                   Generator& g);  // high is exclusive

}  // namespace ringsmith
