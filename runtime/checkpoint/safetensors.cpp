#include "runtime/checkpoint/safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/atomic_file.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith {
namespace {

static_assert(std::endian::native == std::endian::little, "the file's byte order is the memory's");

constexpr std::size_t kHeaderAlignment = 8;        // aligns the first tensor
constexpr std::uint64_t kMaxHeader = 100'000'000;  // bytes; the format's own limit
constexpr std::pair<DType, const char*> kDTypes[] = {
    {DType::f64, "F64"}, {DType::f32, "F32"}, {DType::f16, "F16"}, {DType::bf16, "BF16"},
    {DType::i64, "I64"}, {DType::i32, "I32"}, {DType::u8, "U8"},   {DType::boolean, "BOOL"}};

const char* format_name(DType dtype) {
  for (const auto& [d, name] : kDTypes)
    if (d == dtype) return name;
  throw Error("corrupt dtype tag");
}

std::span<std::byte> bytes_of_tensor(const Tensor& t) {
  return {data_of(t), size_in_bytes(t).value};
}

}  // namespace

void save_safetensors(const std::string& path, const StateDict& tensors, const Metadata& metadata) {
  // Tensors with wide elements come first, so that every tensor is aligned to its element size
  // without gaps.
  std::vector<std::pair<std::string, Tensor>> order;
  for (const auto& [name, tensor] : tensors) {
    require(tensor.defined(), "cannot save '" + name + "': the tensor is undefined");
    require(name != "__metadata__", "cannot save a tensor under the reserved name '__metadata__'");
    order.emplace_back(name, tensor.cpu().contiguous());
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return size_of(a.second.dtype()) > size_of(b.second.dtype());
  });

  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::size_t end = 0;
  for (const auto& [name, tensor] : order) {
    const std::size_t begin = std::exchange(end, end + bytes_of_tensor(tensor).size());
    header[name] = {{"dtype", format_name(tensor.dtype())},
                    {"shape", tensor.sizes()},
                    {"data_offsets", {begin, end}}};
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    throw UsageError("cannot write '" + path + "': a name or its metadata is not UTF-8");
  }
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');

  AtomicFile file(path);
  const std::uint64_t size = text.size();
  file.write(std::as_bytes(std::span(&size, 1)));
  file.write(std::as_bytes(std::span(text)));
  for (const auto& [name, tensor] : order) file.write(bytes_of_tensor(tensor));
  file.commit();
}

namespace {

struct Entry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::uint64_t begin = 0, end = 0;
};

// Finds duplicate keys: JSON parsers keep the last of two equal keys, which would hide a tensor. A
// callback of the parser that builds the header would compare each entry with all others, so this
// is a separate pass.
class UniqueKeys : public nlohmann::json_sax<nlohmann::json> {
 public:
  [[nodiscard]] const std::string& twice() const { return twice_; }

  bool start_object(std::size_t) override {
    open_.emplace_back();
    return true;
  }
  bool key(string_t& name) override {
    if (!open_.back().insert(name).second) twice_ = name;
    return true;
  }
  bool end_object() override {
    open_.pop_back();
    return true;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  std::vector<std::set<std::string>> open_;  // keys of each open object
  std::string twice_;
};

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), file_(nullptr, &std::fclose) {
    if (const std::string kind = odd_kind(path); !kind.empty()) fail("it is " + kind);
    file_.reset(std::fopen(path.c_str(), "rb"));
    if (!file_) fail(std::strerror(errno));
    std::error_code bad;
    file_size_ = std::filesystem::file_size(path, bad);
    if (bad) fail(bad.message());
  }

  Checkpoint read() {
    const nlohmann::json header = read_header();
    Checkpoint checkpoint;
    std::vector<Entry> entries;
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__")
        checkpoint.metadata = metadata(value);
      else
        entries.push_back(entry(name, value));
    }
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    std::uint64_t at = 0;
    for (const Entry& e : entries) {
      if (e.begin < at) fail("tensor '" + e.name + "' overlaps another");
      if (e.begin > at) fail("there is a gap before tensor '" + e.name + "'");
      at = e.end;
    }
    if (at > data_size_)
      fail("truncated: the header promises " + std::to_string(at) + " bytes of data, there are " +
           std::to_string(data_size_));
    if (at < data_size_)
      fail(std::to_string(data_size_ - at) + " bytes after the last tensor belong to no tensor");
    for (const Entry& e : entries) {
      const Tensor tensor = Tensor::empty(e.shape, {e.dtype});
      read_exactly(bytes_of_tensor(tensor));
      if (e.dtype == DType::boolean) require_booleans(e.name, bytes_of_tensor(tensor));
      checkpoint.tensors.emplace(e.name, tensor);
    }
    return checkpoint;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UsageError("cannot read checkpoint '" + path_ + "': " + what);
  }

  void read_exactly(std::span<std::byte> out) {
    if (std::fread(out.data(), 1, out.size(), file_.get()) != out.size())
      fail("the file ended early; it is truncated or still being written");
  }

  // Reading a byte other than 0 or 1 as a bool would be undefined behaviour.
  void require_booleans(const std::string& name, std::span<const std::byte> bytes) const {
    for (const std::byte b : bytes)
      if (b > std::byte{1})
        fail("tensor '" + name + "': a BOOL is " + std::to_string(std::to_integer<int>(b)) +
             ", which is neither 0 nor 1");
  }

  nlohmann::json read_header() {
    if (file_size_ < sizeof(std::uint64_t))
      fail("truncated: " + std::to_string(file_size_) + " bytes, too short for a safetensors file");
    std::uint64_t size = 0;
    read_exactly(std::as_writable_bytes(std::span(&size, 1)));
    if (size > kMaxHeader)
      fail("its header claims " + std::to_string(size) + " bytes, more than the format's " +
           std::to_string(kMaxHeader) + "; is this a safetensors file?");
    if (size > file_size_ - sizeof size)
      fail("truncated: its header of " + std::to_string(size) + " bytes is cut off");
    data_size_ = file_size_ - sizeof size - size;
    std::string text(size, '\0');
    read_exactly(std::as_writable_bytes(std::span(text)));
    if (text.empty() || text.front() != '{') fail("its header is not a JSON object");

    UniqueKeys keys;
    nlohmann::json header = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (header.is_discarded()) fail("its header is not valid JSON");
    nlohmann::json::sax_parse(text, &keys);
    if (!keys.twice().empty()) fail("the name '" + keys.twice() + "' appears twice");
    return header;
  }

  Metadata metadata(const nlohmann::json& value) const {
    Metadata out;
    if (!value.is_object()) fail("__metadata__ is not an object");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) fail("__metadata__ '" + key + "' is not a string");
      out[key] = text.get<std::string>();
    }
    return out;
  }

  Entry entry(const std::string& name, const nlohmann::json& value) const {
    const auto bad = [&](const std::string& what) { fail("tensor '" + name + "': " + what); };
    if (!value.is_object()) bad("its entry is not an object");
    for (const char* field : {"dtype", "shape", "data_offsets"})
      if (!value.contains(field)) bad(std::string("it has no ") + field);
    Entry e{name, DType::f32, {}, 0, 0};

    const nlohmann::json& dtype = value["dtype"];
    const auto* known = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                     [&](const auto& d) { return dtype == d.second; });
    if (known == std::end(kDTypes)) bad("dtype " + dtype.dump() + " is not supported");
    e.dtype = known->first;

    std::uint64_t bytes = size_of(e.dtype);
    if (!value["shape"].is_array()) bad("its shape is not a list");
    for (const nlohmann::json& size : value["shape"]) {
      if (!size.is_number_unsigned()) bad("its shape holds " + size.dump());
      const auto n = size.get<std::uint64_t>();
      constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
      if (n > kMost || (n != 0 && bytes > kMost / n)) bad("its shape is too large");
      bytes *= n;
      e.shape.push_back(static_cast<std::int64_t>(n));
    }
    const nlohmann::json& offsets = value["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned())
      bad("its data_offsets are not two numbers");
    e.begin = offsets[0].get<std::uint64_t>();
    e.end = offsets[1].get<std::uint64_t>();
    if (e.begin > e.end || e.end - e.begin != bytes)
      bad("its data_offsets " + offsets.dump() + " do not span the " + std::to_string(bytes) +
          " bytes of its shape");
    return e;
  }

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  std::uint64_t file_size_ = 0;
  std::uint64_t data_size_ = 0;
};

}  // namespace

Checkpoint load_safetensors(const std::string& path) { return Reader(path).read(); }

}  // namespace ringsmith
