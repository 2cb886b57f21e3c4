#include "runtime/data/dataset.hpp"

#include <array>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <string_view>
#include <unistd.h>
#include <utility>

#include "runtime/base/atomic_file.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/process.hpp"

namespace ringsmith {

void Dataset::check_index(std::int64_t index) const {
  if (index < 0 || index >= size())
    throw UsageError("sample " + std::to_string(index) + " of a dataset of " +
                     std::to_string(size()) + ": indices run from 0 to size - 1");
}

std::vector<std::uint8_t> read_file(const std::string& path, const std::string& what,
                                    std::chrono::milliseconds silence) {
  const auto fail = [&](const std::string& reason) {
    throw UsageError("cannot read " + what + " '" + path + "': " + reason);
  };
  // A device such as /dev/zero has no end.
  if (const std::string kind = odd_kind(path); !kind.empty() && kind != "a FIFO")
    fail("it is " + kind + ", not a file");
  // Without O_NONBLOCK, open() would wait for a writer of the FIFO without a deadline.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) fail(reason_of(errno));
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint8_t> piece(1 << 18);  // pipes have no size, so the file is read in pieces
  for (;;) {
    pollfd ready{file.get(), POLLIN, 0};
    int events = 0;
    for (const Deadline end = Deadline::in(silence); events == 0 && !end.passed();)
      events = ::poll(&ready, 1, end.poll_ms());
    if (events == 0)
      fail(fmt::format(
          "it is a FIFO, and nothing was written to it for {} s: start its writer first, "
          "or give a file",
          std::chrono::duration<double>(silence).count()));
    const ssize_t n = events < 0 ? -1 : ::read(file.get(), piece.data(), piece.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) fail(reason_of(errno));
    if (n == 0) break;
    bytes.insert(bytes.end(), piece.begin(), piece.begin() + n);
  }
  // Rejects compressed files, because the model would be trained on the compressed bytes.
  struct Compressed {
    std::string_view begins, kind, tool;
  };
  constexpr std::array<Compressed, 13> kCompressed{{{"\x1f\x8b", "gzip", "gunzip"},
                                                    {"\xfd\x37zXZ", "xz", "unxz"},
                                                    {"\x28\xb5\x2f\xfd", "zstd", "unzstd"},
                                                    {"PK\x03\x04", "zip", "unzip"},
                                                    {"BZh", "bzip2", "bunzip2"},
                                                    {"LZIP", "lzip", "lzip -d"},
                                                    {"\x1f\x9d", "compress", "uncompress"},
                                                    {"\x04\x22\x4d\x18", "lz4", "unlz4"},
                                                    {"7z\xbc\xaf\x27\x1c", "7-zip", "7z x"},
                                                    {"Rar!\x1a\x07", "rar", "unrar x"},
                                                    {"\x78\x01", "zlib", "pigz -dz"},
                                                    {"\x78\x9c", "zlib", "pigz -dz"},
                                                    {"\x78\xda", "zlib", "pigz -dz"}}};
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const auto& [begins, kind, tool] : kCompressed)
    if (head.starts_with(begins))
      fail("it is " + std::string(kind) + "-compressed; unpack it first: " + std::string(tool) +
           " '" + path + "'");
  return bytes;
}

ByteText load_text(const std::vector<std::string>& paths, double validation_fraction) {
  require(validation_fraction >= 0 && validation_fraction < 1,
          "validation fraction must be in [0, 1), got " + std::to_string(validation_fraction));
  require(!paths.empty(), "no text file given");
  ByteText text;
  for (const std::string& path : paths) {
    const std::vector<std::uint8_t> bytes = read_file(path, "text file");
    const auto held_out = static_cast<std::ptrdiff_t>(
        std::llround(static_cast<double>(bytes.size()) * validation_fraction));
    text.train.insert(text.train.end(), bytes.begin(), bytes.end() - held_out);
    text.validation.insert(text.validation.end(), bytes.end() - held_out, bytes.end());
  }
  require(!text.train.empty() || !text.validation.empty(),
          "text file '" + paths.front() + "'" +
              (paths.size() > 1 ? " and the " + std::to_string(paths.size() - 1) + " others are"
                                : " is") +
              " empty: give a file with some text in it");
  return text;
}

TokenWindows::TokenWindows(std::vector<std::uint16_t> tokens, std::int64_t context,
                           std::int64_t stride, const std::string& name, const char* unit)
    : text_(std::move(tokens)), context_(context), stride_(stride) {
  const std::string units = unit;
  require(context >= 1, "context must be at least 1, got " + std::to_string(context));
  require(stride >= 1, "stride must be at least 1, got " + std::to_string(stride));
  const auto size = static_cast<std::int64_t>(text_.size());
  require(size > context, name + " is too short: " + std::to_string(size) + " " + units +
                              ", but one window of context " + std::to_string(context) + " takes " +
                              std::to_string(context + 1) +
                              "; give more text or a smaller context");
  windows_ = (size - context - 1) / stride + 1;
}

Batch TokenWindows::get(std::span<const std::int64_t> indices) const {
  const Shape shape{static_cast<std::int64_t>(indices.size()), context_};
  Batch batch{Tensor::empty(shape, {DType::i64}), Tensor::empty(shape, {DType::i64})};
  auto* input = batch.inputs.data<std::int64_t>();
  auto* target = batch.targets.data<std::int64_t>();
  for (const std::int64_t index : indices) {
    check_index(index);
    const std::uint16_t* window = text_.data() + index * stride_;
    for (std::int64_t i = 0; i < context_; ++i) {
      *input++ = window[i];
      *target++ = window[i + 1];
    }
  }
  return batch;
}

}  // namespace ringsmith
