// The numbers and the costs of all storages. They are in no header and in no object of a student's
// program, so that only read() and write() can access them.
#include "labs/kit/storage.hpp"

#include <deque>
#include <limits>
#include <string>
#include <utility>

#include "labs/kit/audit.hpp"
#include "labs/kit/driver.hpp"

namespace kit {
namespace {

constexpr std::int64_t most_numbers = 1 << 20;

// Freed storages remain in the list, without their numbers, so that a late access is detected.
struct Row {
  std::unique_ptr<Storage> object;
  std::vector<double> numbers;
  std::int64_t size = 0;
  bool freed = false;
};
struct Ledger {
  std::deque<Row> all;                                // in order of allocation
  std::int64_t allocated = 0, reads = 0, writes = 0;  // allocated: elements, not storages
};
Ledger& ledger() {
  static Ledger one;
  return one;
}

double& at(std::int64_t number, const char* what, std::int64_t position) {
  Row& row = ledger().all.at(std::size_t(number));
  if (!row.freed && position >= 0 && position < row.size) return row.numbers[std::size_t(position)];
  const std::string where = std::string(what) + " at position " + std::to_string(position),
                    name = "storage #" + std::to_string(number) + " of " +
                           std::to_string(row.size) + " numbers";
  if (row.freed)
    throw Misuse{where + " of " + name + ", which has been freed: no reference to it was left"};
  throw Misuse{where + ", outside " + name};
}

}  // namespace

std::int64_t Storage::size() const { return ledger().all.at(std::size_t(number_)).size; }
double Storage::read(std::int64_t position) const {
  const double number = at(number_, "read", position);
  ++ledger().reads;
  return number;
}
void Storage::write(std::int64_t position, double value) {
  at(number_, "write", position) = value;
  ++ledger().writes;
}

std::shared_ptr<Storage> allocate(std::int64_t count) {
  if (count < 0 || count > most_numbers)
    throw Misuse{"allocation of " + std::to_string(count) + " numbers: was that an overflow?"};
  Ledger& all = ledger();
  const auto number = std::int64_t(all.all.size());
  std::vector<double> numbers(std::size_t(count), std::numeric_limits<double>::quiet_NaN());
  all.all.push_back({std::unique_ptr<Storage>(new Storage(number)), std::move(numbers), count});
  all.allocated += count;
  const auto free = [](Storage* storage) {
    Row& row = ledger().all.at(std::size_t(storage->number()));
    row.freed = true;
    row.numbers = {};  // frees the memory, because a training run creates many storages
  };
  return {all.all.back().object.get(), free};
}

void Audit::begin() { ledger().allocated = ledger().reads = ledger().writes = 0; }
std::vector<std::int64_t> Audit::cost() {
  return {ledger().allocated, ledger().reads, ledger().writes};
}
std::int64_t Audit::count() { return std::int64_t(ledger().all.size()); }
bool Audit::freed(std::int64_t number) { return ledger().all.at(std::size_t(number)).freed; }
std::vector<double>& Audit::numbers(std::int64_t number) {
  return ledger().all.at(std::size_t(number)).numbers;
}

}  // namespace kit
