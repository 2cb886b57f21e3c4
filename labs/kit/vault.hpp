// A store for checkpoints that outlives the processes: data that a rank has saved is complete when
// the job is restarted, however the rank ended.
//
// Memory that the driver shares with its processes stands for a disk. It has two slots. A save
// fills the slot that does not hold the last checkpoint and then, with one atomic store, makes it
// the last: a process killed in the middle leaves the old checkpoint. (Real files: chapter 16.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kit {

class Vault {
 public:
  explicit Vault(std::size_t most_numbers);  // capacity of a checkpoint
  ~Vault();
  Vault(const Vault&) = delete;
  Vault& operator=(const Vault&) = delete;

  // Called by one rank of a job at a time. Throws kit::Misuse for more numbers than the capacity.
  void save(std::span<const double> numbers);
  [[nodiscard]] std::vector<double> load() const;  // the last checkpoint; empty: none
  [[nodiscard]] std::int64_t saves() const;        // number of saves

 private:
  struct Header;
  [[nodiscard]] double* place(std::int64_t number) const;
  Header* header_;
  std::size_t most_;
};

}  // namespace kit
