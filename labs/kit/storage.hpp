// A contiguous array of numbers that detects accesses past its end and after it was freed, and
// counts the numbers read, written and allocated.
//
//     std::shared_ptr<kit::Storage> s = kit::allocate(6);   // six numbers, all NaN
//     s->write(2, 9.0);                                     // freed with the last shared_ptr to it
//     s->sum(2, 3)                                          // flat: numbers 2, 3 and 4
//
// Mistakes that real memory would hide in most runs fail here in every run, with the reason.
#pragma once

#include <cstdint>
#include <memory>

namespace kit {

class Storage {
 public:
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  [[nodiscard]] std::int64_t size() const;
  [[nodiscard]] double read(std::int64_t position) const;
  void write(std::int64_t position, double value);

  // Flat operations, as in a vector library: a first position and a count, without sizes and
  // strides.
  [[nodiscard]] double sum(std::int64_t first, std::int64_t count) const {
    double total = 0;
    for (std::int64_t i = 0; i < count; ++i) total += read(first + i);
    return total;
  }
  void fill(std::int64_t first, std::int64_t count, double value) {
    for (std::int64_t i = 0; i < count; ++i) write(first + i, value);
  }

  [[nodiscard]] std::int64_t number() const { return number_; }  // in order of allocation, from 0

 private:
  friend std::shared_ptr<Storage> allocate(std::int64_t count);
  explicit Storage(std::int64_t number) : number_(number) {}
  std::int64_t number_;  // the numbers are elsewhere, in storage.cpp
};

std::shared_ptr<Storage> allocate(std::int64_t count);

}  // namespace kit
