#include "runtime/checkpoint/safetensors.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/error.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/tiny_files.hpp"

using namespace ringsmith;
namespace fs = std::filesystem;

namespace {

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("ringsmith_ckpt_" + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return path_ / name; }
  [[nodiscard]] std::ptrdiff_t files() const {
    return std::distance(fs::directory_iterator(path_), {});
  }

 private:
  fs::path path_;
};

template <class T>
Tensor tensor(const Shape& shape, const std::vector<T>& values) {
  const Tensor t = Tensor::empty(shape, {dtype_of<T>()});
  std::copy(values.begin(), values.end(), t.data<T>());
  return t;
}

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void spill(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Returns the contents of a file with this header and `data` bytes of data.
std::string with_header(const std::string& header, std::size_t data) {
  const std::uint64_t n = header.size();
  std::string out(sizeof n, '\0');
  std::memcpy(out.data(), &n, sizeof n);
  return out + header + std::string(data, '\1');
}

StateDict sample() {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  return {{"layers.0.weight", tensor<float>({2, 3}, {1, -2, 0.5F, nan, -0.0F, 3e38F})},
          {"flags", tensor<bool>({3}, {true, false, true})},
          {"step", tensor<std::int64_t>({1}, {-7})},
          {"none", Tensor::empty({0, 4})},
          {"scalar", tensor<double>({}, {0.1})},
          {"half", tensor<f16>({2}, {f16(1.5F), f16(-2.0F)})},
          {"brain", tensor<bf16>({1}, {bf16(3.0F)})},
          {"ints", tensor<std::int32_t>({2}, {1, -1})},
          {"bytes", tensor<std::uint8_t>({5}, {1, 2, 3, 4, 255})}};
}

std::string raw(const Tensor& t) {
  const Tensor c = t.contiguous();
  const std::size_t size = size_of(c.dtype());
  const std::byte* first =
      c.storage()->data() + static_cast<std::size_t>(c.storage_offset()) * size;
  return {reinterpret_cast<const char*>(first), static_cast<std::size_t>(c.numel()) * size};
}

}  // namespace

TEST_CASE("every dtype, shape and bit pattern survives the round trip, metadata too") {
  const Folder folder;
  const std::string path = folder.file("model.safetensors");
  const Metadata metadata{{"format", "pt"}, {"note", "quotes \" and \xc3\xa4"}};
  save_safetensors(path, sample(), metadata);
  const Checkpoint read = load_safetensors(path);
  CHECK(read.metadata == metadata);
  CHECK(read.tensors.size() == sample().size());
  for (const auto& [name, tensor] : sample()) {
    INFO(name);
    const Tensor& back = read.tensors.at(name);
    CHECK(back.dtype() == tensor.dtype());
    CHECK(back.sizes() == tensor.sizes());
    CHECK(raw(back) == raw(tensor));
  }
  CHECK(folder.files() == 1);

  const Tensor matrix = sample().at("layers.0.weight");
  save_safetensors(path, {{"t", matrix.transpose(0, 1)}});  // strided, but written row-major
  CHECK(raw(load_safetensors(path).tensors.at("t")) == raw(matrix.transpose(0, 1)));
  save_safetensors(path, {});
  CHECK(load_safetensors(path).tensors.empty());
}

TEST_CASE("a reader written from the format's description alone reads the same values") {
  if (std::system("python3 -c pass >/dev/null 2>&1") != 0) {
    WARN("skipped: no python3 on this machine");
    return;
  }
  const Folder folder;
  const std::string path = folder.file("model.safetensors");
  save_safetensors(path, sample(), {{"k", "v"}});
  spill(folder.file("read.py"), R"(
import json, struct, sys
data = open(sys.argv[1], 'rb').read()
n, = struct.unpack('<Q', data[:8])
assert n % 8 == 0, 'data must start aligned'
header = json.loads(data[8:8 + n])
assert header.pop('__metadata__') == {'k': 'v'}
codes = {'F64': 'd', 'F32': 'f', 'F16': 'e', 'BF16': 'H', 'I64': 'q', 'I32': 'i', 'U8': 'B',
         'BOOL': '?'}
body, end, out = data[8 + n:], 0, {}
for name, t in sorted(header.items(), key=lambda item: item[1]['data_offsets']):
    begin, stop = t['data_offsets']
    count = 1
    for size in t['shape']:
        count *= size
    code = codes[t['dtype']]
    width = struct.calcsize(code)
    assert begin == end and begin % width == 0 and stop - begin == count * width, name
    out[name], end = struct.unpack('<%d%s' % (count, code), body[begin:stop]), stop
assert end == len(body)
w = out['layers.0.weight']
assert header['layers.0.weight']['shape'] == [2, 3] and w[:3] == (1.0, -2.0, 0.5) and w[3] != w[3]
assert str(w[4]) == '-0.0' and out['step'] == (-7,) and out['flags'] == (True, False, True)
assert out['scalar'] == (0.1,) and header['scalar']['shape'] == [] and out['none'] == ()
assert out['half'] == (1.5, -2.0) and out['brain'] == (0x4040,)
assert out['ints'] == (1, -1) and out['bytes'] == (1, 2, 3, 4, 255)
)");
  CHECK(std::system(("python3 '" + folder.file("read.py") + "' '" + path + "'").c_str()) == 0);
}

TEST_CASE("a damaged or hostile file is one line with its name and the fault") {
  const Folder folder;
  const std::string path = folder.file("bad.safetensors");
  const auto refused = [&](const std::string& bytes, const std::string& words) {
    spill(path, bytes);
    try {
      (void)load_safetensors(path);
      FAIL("accepted, expected: " << words);
    } catch (const UsageError& e) {
      const std::string message = e.what();
      CHECK_THAT(message, ContainsSubstring("'" + path + "'"));
      CHECK_THAT(message, ContainsSubstring(words));
      CHECK(message.find('\n') == std::string::npos);
    }
  };
  const auto entry = [](const std::string& dtype, const std::string& shape,
                        const std::string& offsets) {
    return R"("a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
           "}";
  };
  const auto one = [&](const std::string& dtype, const std::string& shape,
                       const std::string& offsets, std::size_t data = 8) {
    return with_header("{" + entry(dtype, shape, offsets) + "}", data);
  };
  const std::string a = entry("F32", "[2]", "[0,8]");
  spill(path, with_header("{" + a + "}   ", 8));  // the unchanged file is accepted
  CHECK_NOTHROW(load_safetensors(path));

  refused("", "truncated: 0 bytes");
  refused("1234567", "truncated: 7 bytes");
  refused(with_header("{" + a + "}", 8).substr(0, 20), "is cut off");
  refused(std::string(8, '\xff') + "{}", "is this a safetensors file?");
  refused(with_header("{" + a + "}", 7), "truncated: the header promises 8");
  refused(with_header("{" + a + "}", 9), "1 bytes after the last tensor");
  refused(with_header("", 0), "not a JSON object");
  refused(with_header("[1]", 0), "not a JSON object");
  refused(with_header("{" + a, 8), "not valid JSON");
  refused(with_header("{" + a + "," + a + "}", 8), "'a' appears twice");
  refused(with_header(R"({"a":7})", 0), "not an object");
  refused(with_header(R"({"a":{"dtype":"F32","shape":[0]}})", 0), "no data_offsets");
  refused(with_header(R"({"a":{"dtype":"F32","dtype":"F32","shape":[0],"data_offsets":[0,0]}})", 0),
          "'dtype' appears twice");
  refused(one("F8_E4M3", "[8]", "[0,8]"), "is not supported");
  refused(one("F32", "[-2]", "[0,8]"), "shape holds -2");
  refused(one("F32", "[2.0]", "[0,8]"), "shape holds 2.0");
  refused(one("F32", "3", "[0,8]"), "not a list");
  refused(one("F32", "[4294967296,4294967296]", "[0,8]"), "too large");
  refused(one("F32", "[3]", "[0,8]"), "do not span the 12 bytes");
  refused(one("F32", "[2]", "[8,0]"), "do not span");
  refused(one("F32", "[2]", "[0,8,8]"), "not two numbers");
  refused(one("F32", "[2]", "[-8,0]"), "not two numbers");
  refused(one("F32", "[2]", "[4,12]", 12), "gap before tensor 'a'");
  refused(with_header("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 8),
          "overlaps");
  refused(with_header("{" + a + R"(,"__metadata__":{"k":1}})", 8), "not a string");
  refused(with_header("{" + a + R"(,"__metadata__":[]})", 8), "not an object");
  std::string flags = one("BOOL", "[3]", "[0,3]", 3);  // all three bytes are 1
  spill(path, flags);
  CHECK_NOTHROW(load_safetensors(path));
  flags.back() = '\2';
  refused(flags, "tensor 'a': a BOOL is 2, which is neither 0 nor 1");
  CHECK_THROWS_WITH(load_safetensors(folder.file("none")), ContainsSubstring("No such file"));
  CHECK_THROWS_AS(load_safetensors(fs::temp_directory_path()), UsageError);
}

TEST_CASE("a file cut at any byte is refused, and never read as something else") {
  const Folder folder;
  const std::string path = folder.file("whole.safetensors");
  save_safetensors(path, sample());
  const std::string whole = slurp(path);
  for (std::size_t n = 0; n < whole.size(); ++n) {
    spill(folder.file("cut"), whole.substr(0, n));
    REQUIRE_THROWS_AS(load_safetensors(folder.file("cut")), UsageError);
  }
}

TEST_CASE("a failed save leaves the old checkpoint and no temporary file") {
  const Folder folder;
  const std::string path = folder.file("model.safetensors");
  save_safetensors(path, sample());
  const std::string before = slurp(path);
  CHECK_THROWS_AS(save_safetensors(path, {{"undefined", Tensor()}}), UsageError);
  CHECK_THROWS_WITH(save_safetensors(path, {{"bad \xff name", Tensor::empty({1})}}),
                    ContainsSubstring("UTF-8"));
  CHECK_THROWS_AS(save_safetensors(path, {{"__metadata__", Tensor::empty({1})}}), UsageError);
  CHECK(slurp(path) == before);
  CHECK(folder.files() == 1);
  CHECK_THROWS_WITH(save_safetensors(folder.file("no/such/folder"), sample()),
                    ContainsSubstring("No such file"));
  fs::create_directory(folder.file("taken"));
  CHECK_THROWS_WITH(save_safetensors(folder.file("taken"), sample()),
                    ContainsSubstring("it is a folder"));
  CHECK(folder.files() == 2);  // the checkpoint and the folder; no temporary file
}

TEST_CASE("a full disk is no mistake of the user's, and loses nothing") {
  const Folder folder;
  const std::string path = folder.file("model.safetensors");
  save_safetensors(path, sample());
  const std::string before = slurp(path);
  const auto code_of = [](const std::string& where) {
    try {
      save_safetensors(where, sample());
      return ExitCode::ok;
    } catch (const Error& e) {
      return e.exit_code();
    }
  };
  {
    const testing::TinyFiles full_disk(100);
    CHECK(code_of(path) == ExitCode::internal);
  }
  CHECK(code_of(folder.file("no/such/folder")) == ExitCode::usage);
  CHECK(slurp(path) == before);
  CHECK(folder.files() == 1);
}

TEST_CASE("a header of very many tensors is read in time that grows with their number") {
  const Folder folder;
  const std::string path = folder.file("many.safetensors");
  constexpr int kMany = 100'000;  // would take half an hour if all pairs were compared
  std::string header = "{";
  for (int i = 0; i < kMany; ++i)
    header += (i > 0 ? ",\"" : "\"") + std::to_string(i) +
              R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  spill(path, with_header(header + "}", 0));
  CHECK(load_safetensors(path).tensors.size() == kMany);
  spill(path, with_header(header + R"(,"7":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", 0));
  CHECK_THROWS_WITH(load_safetensors(path), ContainsSubstring("the name '7' appears twice"));
}

TEST_CASE("what is no file is neither waited for nor written over") {
  const Folder folder;
  const std::string fifo = folder.file("fifo"), link = folder.file("link");
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  for (const std::string& path : {fifo, std::string("/dev/zero"), std::string("/dev/full")}) {
    CHECK_THROWS_WITH(load_safetensors(path), ContainsSubstring("it is a "));
    CHECK_THROWS_WITH(save_safetensors(path, sample()), ContainsSubstring("it is a "));
    CHECK_FALSE(fs::is_regular_file(path));
  }
  fs::create_symlink("file", link);
  save_safetensors(link, sample());
  CHECK(fs::is_symlink(link));
  CHECK(load_safetensors(folder.file("file")).tensors.size() == sample().size());
  CHECK(folder.files() == 3);
}
