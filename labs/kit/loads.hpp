// An array in device memory whose loads are counted: a[i] is one load of one element from memory,
// not from registers or shared memory. The memory holds the elements enciphered with a key of this
// run, so code that reads it in any other way gets wrong numbers.
#pragma once

#include <cstdint>

namespace kit {

struct Audit;

template <class T>
class Loads;

template <>
class Loads<float> {
 public:
  float operator[](std::int64_t i) const;

 private:
  friend Audit;
  explicit Loads(std::uint64_t number) : number_(number) {}
  std::uint64_t number_;
};

}  // namespace kit
