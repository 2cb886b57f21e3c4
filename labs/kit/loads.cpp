// The elements of kit::Loads, their cipher and the number of loads. As in storage.cpp, no object of
// a student's program contains any of this.
#include "labs/kit/loads.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <random>

#include "labs/kit/audit.hpp"

namespace kit {
namespace {

struct Hidden {
  std::uint64_t key = std::random_device()() | std::uint64_t{std::random_device()()} << 32;
  const float* memory = nullptr;
  std::atomic<std::int64_t> loads = 0;
};
Hidden& hidden(std::uint64_t number) {
  static std::array<Hidden, 2> all;
  return all.at(std::size_t(number));
}

// The finalizer of SplitMix64 (Steele et al., OOPSLA 2014).
float ciphered(float element, std::uint64_t key, std::int64_t i) {
  std::uint64_t z = key + (std::uint64_t(i) + 1) * 0x9E3779B97F4A7C15;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
  z = (z ^ z >> 27) * 0x94D049BB133111EB;
  std::uint32_t bits = 0;
  std::memcpy(&bits, &element, sizeof bits);
  bits ^= std::uint32_t(z ^ z >> 31);
  std::memcpy(&element, &bits, sizeof bits);
  return element;
}

}  // namespace

float Loads<float>::operator[](std::int64_t i) const {
  Hidden& array = hidden(number_);
  array.loads.fetch_add(1, std::memory_order_relaxed);
  return ciphered(array.memory[i], array.key, i);
}

std::vector<float> Audit::hide(std::uint64_t number, std::vector<float> elements) {
  for (std::size_t i = 0; i < elements.size(); ++i)
    elements[i] = ciphered(elements[i], hidden(number).key, std::int64_t(i));
  return elements;
}
Loads<float> Audit::open(std::uint64_t number, const float* memory) {
  hidden(number).memory = memory;
  return Loads<float>(number);
}
std::int64_t Audit::loads(std::uint64_t number) { return hidden(number).loads; }

}  // namespace kit
