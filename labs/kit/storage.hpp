// A row of numbers, one after the other, that notices what is done with it: who reads behind its
// end, who still reads after it was freed, and how much was read, written and allocated.
//
//     std::shared_ptr<kit::Storage> s = kit::allocate(6);   // six numbers, each a NaN so far
//     s->write(2, 9.0);                                     // freed with the last shared_ptr to it
//     s->sum(2, 3)                                          // flat: numbers 2, 3 and 4
//
// What real memory would let pass in most runs is a failure here, in every run, with its reason.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "labs/kit/driver.hpp"

namespace kit {

struct Audit;  // the driver's

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

  // Flat operations, as a library for vectors has them: they know a first position and a count, and
  // nothing of sizes or strides.
  [[nodiscard]] double sum(std::int64_t first, std::int64_t count) const {
    double total = 0;
    for (std::int64_t i = 0; i < count; ++i) total += read(first + i);
    return total;
  }
  void fill(std::int64_t first, std::int64_t count, double value) {
    for (std::int64_t i = 0; i < count; ++i) write(first + i, value);
  }

  [[nodiscard]] std::int64_t number() const { return number_; }  // of the run's storages, from 0

 private:
  friend std::shared_ptr<Storage> allocate(std::int64_t count);
  friend Audit;  // a student's file that defines one, too, does not compile beside the driver's
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
      throw Misuse{where + " of " + name() + ", which has been freed: nobody held it any more"};
    throw Misuse{where + ", outside of " + name()};
  }

  // The storages of a run in the order of their allocation, freed ones too: the objects stay,
  // without their numbers, so that a late reader finds out that those have gone.
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

// A new storage. It is freed when the last copy of the shared_ptr has gone.
inline std::shared_ptr<Storage> allocate(std::int64_t count) {
  if (count < 0 || count > Storage::most)
    throw Misuse{"allocation of " + std::to_string(count) + " numbers: was that an overflow?"};
  auto& ledger = Storage::ledger();
  ledger.all.emplace_back(new Storage(count, std::int64_t(ledger.all.size())));
  ledger.allocated += count;
  const auto free = [](Storage* storage) {
    storage->freed_ = true;
    storage->numbers_ = {};  // a training run makes many
  };
  return {ledger.all.back().get(), free};
}

}  // namespace kit
