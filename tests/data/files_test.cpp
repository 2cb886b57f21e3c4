#include <chrono>
#include <filesystem>
#include <fstream>
#include <stdlib.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "runtime/data/dataset.hpp"
#include "runtime/data/images.hpp"
#include "tests/data/test_files.hpp"

using namespace ringsmith;
using test::Folder;
using test::refuses;
using Bytes8 = std::vector<std::uint8_t>;

namespace {

Bytes8 text(const std::string& s) { return {s.begin(), s.end()}; }

Bytes8 idx(const std::vector<std::uint32_t>& sizes, const Bytes8& data, std::uint8_t type = 8) {
  Bytes8 file{0, 0, type, static_cast<std::uint8_t>(sizes.size())};
  for (const std::uint32_t s : sizes)
    for (int shift = 24; shift >= 0; shift -= 8)
      file.push_back(static_cast<std::uint8_t>(s >> shift));
  file.insert(file.end(), data.begin(), data.end());
  return file;
}

}  // namespace

TEST_CASE("byte windows: the target is the next byte, and every window is inside the text") {
  const ByteWindows windows(text("The ring turns"), 4, 3);
  // Windows start at 0, 3, 6 and 9.
  REQUIRE(windows.size() == 4);
  const std::vector<std::int64_t> order{3, 0};
  const Batch batch = windows.get(order);
  CHECK(batch.inputs.sizes() == Shape{2, 4});
  const auto as_text = [](const Tensor& t) {
    const std::vector<std::int64_t> v = t.to_vector<std::int64_t>();
    return std::string(v.begin(), v.end());
  };
  CHECK(as_text(batch.inputs) == "turnThe ");
  CHECK(as_text(batch.targets) == "urnshe r");
  CHECK(ByteWindows(text("\xff\xfe"), 1, 1)
            .get(std::vector<std::int64_t>{0})
            .inputs.item<std::int64_t>() == 255);  // bytes above 127 stay positive
  CHECK_THROWS_AS(windows.get(std::vector<std::int64_t>{4}), UsageError);
  CHECK_THROWS_AS(windows.get(std::vector<std::int64_t>{-1}), UsageError);
  CHECK(ByteWindows(text("12345"), 4, 9).size() == 1);
  CHECK_THROWS_WITH(
      ByteWindows(text("1234"), 4, 1, "validation text"),
      ContainsSubstring("validation text is too short: 4 bytes") && ContainsSubstring("takes 5"));
}

TEST_CASE("the validation part is the tail of each file, and no byte is in both parts") {
  const Folder folder;
  const std::string a = folder.write("a", text("0123456789"));
  const std::string b = folder.write("b", text("abcde"));
  const std::string empty = folder.write("empty", Bytes8{});
  const ByteText loaded = load_text({a, empty, b}, 0.2);
  CHECK(loaded.train == text("01234567abcd"));
  CHECK(loaded.validation == text("89e"));
  refuses(
      [&] {
        (void)load_text({a, folder.path() + "/none"});
      },
      folder.path() + "/none", "No such file");
  refuses([&] { (void)load_text({folder.path()}); }, folder.path(), "folder");
  refuses([&] { (void)load_text({"/dev/zero"}); }, "/dev/zero", "it is a device, not a file");
  refuses([&] { (void)load_text({empty}); }, empty, "is empty");
  CHECK_THROWS_AS(load_text({}), UsageError);
  CHECK_THROWS_AS(load_text({a}, 1.0), UsageError);
}

TEST_CASE("IDX images and labels come back as written, scaled to MNIST's mean and deviation") {
  const Folder folder;
  const std::string images =
      folder.write("train-images-idx3-ubyte", idx({2, 1, 3}, {0, 255, 51, 1, 2, 3}));
  const std::string labels = folder.write("train-labels.idx1-ubyte", idx({2}, {7, 0}));
  const ImageDataset set(load_mnist(folder.path(), true));
  REQUIRE(set.size() == 2);
  const Batch batch = set.get(std::vector<std::int64_t>{1, 0});
  CHECK(batch.inputs.sizes() == Shape{2, 1, 1, 3});
  CHECK(batch.targets.to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 7});
  CHECK(batch.inputs.to_vector<float>()[4] == (1.0F - 0.1307F) / 0.3081F);
  CHECK_THROWS_AS(set.get(std::vector<std::int64_t>{2}), UsageError);
  refuses([&] { (void)load_mnist(folder.path(), false); },
          folder.path() + "/t10k-images-idx3-ubyte", "No such file");
}

TEST_CASE("a broken IDX file is one line with its name and the fault") {
  const Folder folder;
  const auto broken = [&](const Bytes8& bytes, const std::string& words) {
    const std::string file = folder.write("broken", bytes);
    refuses([&] { (void)read_idx(file); }, file, words);
  };
  const Bytes8 good = idx({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  broken({}, "is empty");
  broken({0, 0, 8}, "first 4 bytes");
  broken(text("not an idx file at all"), "magic number");
  broken({0x1f, 0x8b, 8, 0, 0}, "gunzip");
  broken(idx({2}, {1, 2}, 0x0d), "element type 13");
  broken(Bytes8(good.begin(), good.begin() + 9), "within its header");
  broken(Bytes8(good.begin(), good.end() - 1),
         "is truncated: 7 bytes of data, its header promises 8");
  Bytes8 longer = good;
  longer.push_back(0);
  broken(longer, "is too long");
  broken(idx({0xffffffff, 0xffffffff, 0xffffffff}, {}), "more elements than a file can hold");

  const std::string images = folder.write("images", good);
  const std::string labels = folder.write("labels", idx({3}, {0, 1, 2}));
  refuses([&] { (void)load_idx_images(images, labels); }, labels, "2 images");
  refuses([&] { (void)load_idx_images(labels, images); }, labels, "swapped");
  const std::string high = folder.write("high", idx({2}, {0, 10}));
  refuses([&] { (void)load_idx_images(images, high); }, high, "label 1 is 10");
  const std::string none = folder.write("none", idx({0, 2, 2}, {}));
  refuses([&] { (void)load_idx_images(none, labels); }, none, "holds no images");
}

namespace {

// A CIFAR-10 file. Record i has its label, and i in red, i + 1 in green, i + 2 in blue.
Bytes8 cifar(const std::vector<int>& labels) {
  Bytes8 file;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    file.push_back(static_cast<std::uint8_t>(labels[i]));
    for (std::size_t colour = 0; colour < 3; ++colour)
      file.insert(file.end(), 1024, static_cast<std::uint8_t>(i + colour));
  }
  return file;
}

}  // namespace

TEST_CASE("CIFAR-10: five files in order, planes of red, green and blue") {
  const Folder folder;
  CHECK(find_cifar10(folder.path()).empty());
  std::filesystem::create_directories(folder.path() + "/cifar-10-batches-bin");
  const std::string inner = "cifar-10-batches-bin/";
  for (int i = 1; i <= 5; ++i)
    (void)folder.write(inner + "data_batch_" + std::to_string(i) + ".bin", cifar({i, i + 4}));
  (void)folder.write(inner + "test_batch.bin", cifar({7}));
  const Images train = load_cifar10(folder.path(), true);  // given the parent folder
  CHECK(train.labels == Bytes8{1, 5, 2, 6, 3, 7, 4, 8, 5, 9});
  CHECK(load_cifar10(folder.path() + "/cifar-10-batches-bin", true).pixels == train.pixels);
  CHECK(load_cifar10(folder.path(), false).labels == Bytes8{7});
  const Batch batch = ImageDataset(train, 10, PixelStatistics{{0, 0, 0}, {1, 1, 1}})
                          .get(std::vector<std::int64_t>{1});
  REQUIRE(batch.inputs.sizes() == Shape{1, 3, 32, 32});
  CHECK(batch.targets.item<std::int64_t>() == 5);
  for (std::int64_t c = 0; c < 3; ++c)
    CHECK(batch.inputs.select(1, c).to_vector<float>() ==
          std::vector<float>(1024, static_cast<float>(1 + c) / 255.0F));
}

TEST_CASE("broken CIFAR-10 files are refused by name") {
  const Folder folder;
  const auto write = [&](int i, const Bytes8& bytes) {
    return folder.write("data_batch_" + std::to_string(i) + ".bin", bytes);
  };
  CHECK_THROWS_WITH(load_cifar10(folder.path(), true),
                    ContainsSubstring("'" + folder.path() + "' has no data_batch_1.bin; unpack"));
  const auto load = [&] { (void)load_cifar10(folder.path(), true); };
  for (int i = 1; i <= 4; ++i) write(i, cifar({1, 2}));
  refuses(load, folder.path() + "/data_batch_5.bin", "No such file");
  Bytes8 cut = cifar({1, 2});
  cut.pop_back();
  refuses(load, write(5, cut), "6145 bytes, not a multiple of the record size 3073; unpack");
  refuses(load, write(5, {}), "0 bytes");
  refuses(load, write(5, cifar({1, 10})), "label of record 1 is 10, expected 0 to 9");
  write(5, cifar({1}));
  CHECK(load_cifar10(folder.path(), true).labels.size() == 9);
  refuses([&] { (void)load_cifar10(folder.path(), false); }, folder.path() + "/test_batch.bin",
          "No such file");
}

TEST_CASE("compressed text is refused by the name of its packer, and nothing is learnt from it") {
  const struct {
    std::string begins, says;
  } kinds[] = {{"\x1f\x8b\x08", "gzip-compressed; unpack it first: gunzip '"},
               {"\xfd"
                "7zXZ",
                "xz-compressed; unpack it first: unxz '"},
               {"\x28\xb5\x2f\xfd", "zstd-compressed; unpack it first: unzstd '"},
               {"PK\x03\x04", "zip-compressed; unpack it first: unzip '"},
               {"BZh91AY", "bzip2-compressed; unpack it first: bunzip2 '"},
               {"LZIP\x01", "lzip-compressed; unpack it first: lzip -d '"},
               {"\x1f\x9d\x90", "compress-compressed; unpack it first: uncompress '"},
               {"\x04\x22\x4d\x18", "lz4-compressed; unpack it first: unlz4 '"},
               {"7z\xbc\xaf\x27\x1c", "7-zip-compressed; unpack it first: 7z x '"},
               {"Rar!\x1a\x07", "rar-compressed; unpack it first: unrar x '"},
               {"\x78\x9c", "zlib-compressed; unpack it first: pigz -dz '"}};
  std::string path = std::filesystem::temp_directory_path() / "ringsmith-text-XXXXXX";
  const int file = mkstemp(path.data());
  REQUIRE(file >= 0);
  close(file);
  for (const auto& [begins, says] : kinds) {
    std::ofstream(path, std::ios::binary) << begins << std::string(500, 'x');
    CHECK_THROWS_WITH(load_text({path}),
                      ContainsSubstring("text file '" + path + "': it is " + says + path));
    std::ofstream(path, std::ios::binary) << "a" << begins << std::string(500, 'x');
    CHECK_NOTHROW(load_text({path}));
  }
  std::filesystem::remove(path);
}

TEST_CASE("a FIFO is read to its end, and not waited for without a deadline") {
  const Folder folder;
  const std::string fifo = folder.path() + "/fifo";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  const auto begin = std::chrono::steady_clock::now();
  refuses([&] { (void)read_file(fifo, "text file", std::chrono::milliseconds(200)); }, fifo,
          "nothing was written to it for 0.2 s: start its writer first, or give a file");
  CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(200));

  const std::string words(1 << 20, 'x');  // more than a pipe holds
  std::thread writer([&] {
    std::ofstream out(fifo, std::ios::binary);
    out << words << std::flush;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    out << "end";
  });
  const Bytes8 read = read_file(fifo, "text file", std::chrono::seconds(30));
  writer.join();
  CHECK(read == text(words + "end"));
}
