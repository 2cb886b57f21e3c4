#include "tests/reference/npy.hpp"

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>

namespace ringsmith::reference {

namespace {

// Returns a key's value in the header: a tuple without its closing bracket, or the text up to the
// comma.
std::string field(const std::string& header, const std::string& key, const std::string& file) {
  const std::size_t at = header.find("'" + key + "':");
  require(at != std::string::npos, file + ": no '" + key + "' in the npy header");
  const std::size_t begin = header.find_first_not_of(' ', at + key.size() + 3);
  require(begin != std::string::npos, file + ": the npy header ends after '" + key + "'");
  const std::size_t end = header.find(header[begin] == '(' ? ')' : ',', begin);
  require(end != std::string::npos, file + ": the npy header ends inside '" + key + "'");
  return header.substr(begin, end - begin);
}

Shape parse_shape(const std::string& tuple) {  // "(2, 3" or "(5," or "("
  Shape shape;
  for (std::size_t i = 1; i < tuple.size();) {
    if (tuple[i] < '0' || tuple[i] > '9') {
      ++i;
      continue;
    }
    std::size_t used = 0;
    shape.push_back(std::stoll(tuple.substr(i), &used));
    i += used;
  }
  return shape;
}

}  // namespace

template <class T>
NpyArray<T> read_npy(const std::filesystem::path& path) {
  const std::string file = path.string();
  std::ifstream in(path, std::ios::binary);
  require(in.good(), "cannot read " + file);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  constexpr std::string_view kMagic = "\x93NUMPY";
  require(bytes.size() >= 12 && bytes.compare(0, kMagic.size(), kMagic) == 0,
          file + " is no npy file");
  const auto byte = [&](std::size_t i) {
    return static_cast<std::size_t>(static_cast<unsigned char>(bytes[i]));
  };
  const bool short_length = byte(6) == 1;
  const std::size_t length =
      byte(8) | byte(9) << 8 | (short_length ? 0 : byte(10) << 16 | byte(11) << 24);
  const std::size_t start = short_length ? 10 : 12;
  require(bytes.size() >= start + length, file + ": truncated npy header");
  const std::string header = bytes.substr(start, length);
  const std::string type = std::is_same_v<T, float> ? "'<f4'" : "'<i8'";
  require(field(header, "descr", file) == type,
          file + ": dtype " + field(header, "descr", file) + ", expected " + type);
  require(field(header, "fortran_order", file) == "False", file + ": not in C order");
  NpyArray<T> array{parse_shape(field(header, "shape", file)), {}};
  const auto n = static_cast<std::size_t>(numel_of(array.shape));
  require(bytes.size() == start + length + n * sizeof(T),
          file + ": " + std::to_string(bytes.size() - start - length) +
              " bytes of values for shape " + to_string(array.shape));
  array.values.resize(n);
  if (n > 0) std::memcpy(array.values.data(), bytes.data() + start + length, n * sizeof(T));
  return array;
}

template NpyArray<float> read_npy<float>(const std::filesystem::path&);
template NpyArray<std::int64_t> read_npy<std::int64_t>(const std::filesystem::path&);

}  // namespace ringsmith::reference
