// A store for checkpoints that outlives the processes, however they end.
//
// Memory that the driver shares with its processes stands for a disk. It has two slots. A save
// fills the slot that does not hold the last checkpoint, and then marks it as the last checkpoint
// with one atomic store: if a process is killed during a save, the old checkpoint remains. Chapter
// 16 does the same with real files.
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
