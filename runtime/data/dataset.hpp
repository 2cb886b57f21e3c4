// Dataset: a fixed number of samples, fetched in batches by index.
//
//   sampler -> indices -> DataLoader's worker threads -> Dataset::get -> Batch, in sampler order
//
// Text datasets are declared here, image datasets in images.hpp.
#pragma once

#include <chrono>
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
  [[nodiscard]] Batch pin_memory() const { return {inputs.pin_memory(), targets.pin_memory()}; }
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  [[nodiscard]] virtual std::int64_t size() const = 0;
  // The samples of these indices, stacked in this order along dimension 0. Called from several
  // threads concurrently. Throws UsageError for an index outside [0, size()).
  [[nodiscard]] virtual Batch get(std::span<const std::int64_t> indices) const = 0;
  // The samples as training sees them in this epoch: the same as get() returns, unless the dataset
  // modifies samples at random.
  [[nodiscard]] virtual Batch get_in_epoch(std::span<const std::int64_t> indices,
                                           std::int64_t /*epoch*/) const {
    return get(indices);
  }

 protected:
  void check_index(std::int64_t index) const;  // for implementations of get()
};

// Reads a whole file, or a FIFO to its end. Throws UsageError "cannot read WHAT 'PATH': reason" if
// the file is missing, unreadable, compressed, or not a regular file or FIFO, or if nothing was
// written to the FIFO for this long.
[[nodiscard]] std::vector<std::uint8_t> read_file(
    const std::string& path, const std::string& what,
    std::chrono::milliseconds silence = std::chrono::minutes(1));

// ---- text as bytes ----
//
// Any file that is not compressed can be training data.
//
//   text      T h e _ r i n g _ t u r n s ...
//   inputs    T h e _ r i n g                 context = 8
//   targets   h e _ r i n g _                 at each position the next byte
//
// A window starts every `stride` bytes. The validation part is the tail of each file: it is as
// diverse as the training part, and no training window overlaps it.

struct ByteText {
  std::vector<std::uint8_t> train;
  std::vector<std::uint8_t> validation;
};

// Reads the files in this order; the last round(size * validation_fraction) bytes of each file are
// for validation. Throws UsageError if validation_fraction is outside [0, 1), and, naming the file,
// if a file cannot be read or all files are empty.
[[nodiscard]] ByteText load_text(const std::vector<std::string>& paths,
                                 double validation_fraction = 0.1);

// Windows of a text given as numbers: bytes, or tokens of a vocabulary (tokens.hpp). inputs and
// targets are i64 of shape (batch, context). Throws UsageError if context or stride is below 1,
// and, naming `name`, if the text is shorter than one window of context + 1 numbers.
class TokenWindows : public Dataset {
 public:
  TokenWindows(std::vector<std::uint16_t> tokens, std::int64_t context, std::int64_t stride,
               const std::string& name = "text", const char* unit = "tokens");
  TokenWindows(const std::vector<std::uint8_t>& bytes, std::int64_t context, std::int64_t stride,
               const std::string& name = "text")
      : TokenWindows(std::vector<std::uint16_t>(bytes.begin(), bytes.end()), context, stride, name,
                     "bytes") {}

  [[nodiscard]] std::int64_t size() const override { return windows_; }
  [[nodiscard]] Batch get(std::span<const std::int64_t> indices) const override;
  [[nodiscard]] const std::vector<std::uint16_t>& text() const { return text_; }

 private:
  std::vector<std::uint16_t> text_;
  std::int64_t context_;
  std::int64_t stride_;
  std::int64_t windows_ = 0;
};
using ByteWindows = TokenWindows;

}  // namespace ringsmith
