// Text as bytes: the vocabulary is the 256 byte values, so any file is training data.
//
//   text      T h e _ r i n g _ t u r n s ...
//   inputs    T h e _ r i n g                 context = 8
//   targets   h e _ r i n g _                 at every place the byte that comes next
//
// Windows start every `stride` bytes. The validation part is the tail of each file, so that it is
// as mixed as the training part, and no byte of it is ever trained on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/dataset.hpp"

namespace ringsmith {

constexpr std::int64_t kByteVocabulary = 256;

struct ByteText {
  std::vector<std::uint8_t> train;
  std::vector<std::uint8_t> validation;
};

// Reads the files in this order; of each file the last round(size * validation_fraction) bytes go
// to validation. Empty files among several are skipped. UsageError naming the file if one cannot be
// read, or if there is no byte in all of them.
[[nodiscard]] ByteText load_text(const std::vector<std::string>& paths,
                                 double validation_fraction = 0.1);

// inputs and targets are i64 of shape (batch, context). UsageError naming `name` if the text has
// not even one window, which takes context + 1 bytes.
class ByteWindows : public Dataset {
 public:
  ByteWindows(std::vector<std::uint8_t> text, std::int64_t context, std::int64_t stride,
              const std::string& name = "text");

  [[nodiscard]] std::int64_t size() const override { return windows_; }
  [[nodiscard]] Batch get(std::span<const std::int64_t> indices) const override;
  [[nodiscard]] const std::vector<std::uint8_t>& text() const { return text_; }

 private:
  std::vector<std::uint8_t> text_;
  std::int64_t context_;
  std::int64_t stride_;
  std::int64_t windows_ = 0;
};

}  // namespace ringsmith
