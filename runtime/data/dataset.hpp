// Dataset: a fixed number of samples, fetched in batches by index.
//
//   sampler -> indices -> DataLoader's worker threads -> Dataset::get -> Batch, in sampler order
//
// Text: bytes.hpp. Images: images.hpp, read from files or drawn.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

struct Batch {
  Tensor inputs;
  Tensor targets;
  [[nodiscard]] Batch to(Device device) const { return {inputs.to(device), targets.to(device)}; }
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  [[nodiscard]] virtual std::int64_t size() const = 0;
  // The samples of these indices, stacked in this order along dimension 0. Called from several
  // threads at once, so it must not change the object. An index outside [0, size()) is a
  // UsageError.
  [[nodiscard]] virtual Batch get(std::span<const std::int64_t> indices) const = 0;

 protected:
  void check_index(std::int64_t index) const;  // for implementations of get()
};

// A whole file. UsageError "cannot read WHAT 'PATH': reason" if it is missing, a directory or unreadable.
[[nodiscard]] std::vector<std::uint8_t> read_file(const std::string& path, const std::string& what);

}  // namespace ringsmith
