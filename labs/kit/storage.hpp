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
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "labs/kit/driver.hpp"

namespace kit {

struct Audit;  // defined by the driver

class Storage {
 public:
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] double read(std::int64_t position) const {
    check("read", position);
    ++ledger().reads;
    return numbers_[std::size_t(position)];
  }
  void write(std::int64_t position, double value) {
    check("write", position);
    ++ledger().writes;
    numbers_[std::size_t(position)] = value;
  }

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
  friend Audit;  // a second definition in a student's file would not compile
  static constexpr std::int64_t most = 1 << 20;
  Storage(std::int64_t count, std::int64_t number)
      : numbers_(std::size_t(count), std::numeric_limits<double>::quiet_NaN()),
        size_(count),
        number_(number) {}

  [[nodiscard]] std::string name() const {
    return "storage #" + std::to_string(number_) + " of " + std::to_string(size()) + " numbers";
  }
  void check(const char* what, std::int64_t position) const {
    if (!freed_ && position >= 0 && position < size()) return;
    const std::string where = std::string(what) + " at position " + std::to_string(position);
    if (freed_)
      throw Misuse{where + " of " + name() + ", which has been freed: no reference to it was left"};
    throw Misuse{where + ", outside " + name()};
  }

  // The storages of a run in order of allocation. Freed ones remain, without their numbers, so that
  // a late access is detected.
  struct Ledger {
    std::vector<std::unique_ptr<Storage>> all;
    std::int64_t allocated = 0, reads = 0, writes = 0;  // allocated: elements, not storages
  };
  static Ledger& ledger() {
    static Ledger one;
    return one;
  }

  std::vector<double> numbers_;
  std::int64_t size_, number_;
  bool freed_ = false;
};

inline std::shared_ptr<Storage> allocate(std::int64_t count) {
  if (count < 0 || count > Storage::most)
    throw Misuse{"allocation of " + std::to_string(count) + " numbers: was that an overflow?"};
  auto& ledger = Storage::ledger();
  ledger.all.emplace_back(new Storage(count, std::int64_t(ledger.all.size())));
  ledger.allocated += count;
  const auto free = [](Storage* storage) {
    storage->freed_ = true;
    storage->numbers_ = {};  // releases the memory, because a training run makes many storages
  };
  return {ledger.all.back().get(), free};
}

}  // namespace kit
