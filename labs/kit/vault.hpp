// A place for checkpoints that outlives the processes: what a rank has saved is there when the job
// is started again, whole, however the rank ended.
//
// Memory that the driver shares with its processes stands for a disk. There are two places. A save
// fills the one that does not hold the last checkpoint, and then, in one store, makes it the last:
// a process that is killed in the middle leaves the old one. (Real files: chapter 16.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kit {

class Vault {
 public:
  explicit Vault(std::size_t most_numbers);  // in a checkpoint
  ~Vault();
  Vault(const Vault&) = delete;
  Vault& operator=(const Vault&) = delete;

  // Called by one rank of a job at a time. Throws kit::Misuse for more numbers than it can hold.
  void save(std::span<const double> numbers);
  [[nodiscard]] std::vector<double> load() const;  // the last ones; empty: nothing was saved yet
  [[nodiscard]] std::int64_t saves() const;        // how many there were

 private:
  struct Header;
  [[nodiscard]] double* place(std::int64_t number) const;
  Header* header_;
  std::size_t most_;
};

}  // namespace kit
