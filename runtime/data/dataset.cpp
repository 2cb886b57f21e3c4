#include "runtime/data/dataset.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "runtime/base/error.hpp"

namespace ringsmith {

void Dataset::check_index(std::int64_t index) const {
  if (index < 0 || index >= size())
    throw UsageError("sample " + std::to_string(index) + " of a dataset of " +
                     std::to_string(size()) + ": indices run from 0 to size - 1");
}

std::vector<std::uint8_t> read_file(const std::string& path, const std::string& what) {
  const auto fail = [&](const std::string& reason) {
    throw UsageError("cannot read " + what + " '" + path + "': " + reason);
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) fail("it is a folder, not a file");
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (!file) fail(std::strerror(errno));
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint8_t> piece(1 << 18);  // read to the end, not to a size: pipes work too
  for (;;) {
    errno = 0;
    const std::size_t n = std::fread(piece.data(), 1, piece.size(), file.get());
    bytes.insert(bytes.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(n));
    if (std::ferror(file.get()) != 0) fail(std::strerror(errno));
    if (n < piece.size()) return bytes;
  }
}

}  // namespace ringsmith
