#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <stdlib.h>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/temporary_folder.hpp"

namespace ringsmith::testing {

inline std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::string write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

// Writes an IDX file of bytes: a header with the sizes, and `elements` bytes. If `elements` is -1,
// writes as many bytes as the header promises.
inline std::string write_idx(const std::string& path, const std::vector<int>& sizes,
                             int elements = -1) {
  std::string bytes{'\0', '\0', '\x08', static_cast<char>(sizes.size())};
  int n = 1;
  for (const int size : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(size >> shift & 0xff);
    n *= size;
  }
  for (int i = 0; i < (elements >= 0 ? elements : n); ++i) bytes += static_cast<char>(i % 10);
  return write_text(path, bytes);
}

inline std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Runs the program alone (world 0), or on `world` ranks under mpirun. Ignores leaks under mpirun,
// because Open MPI leaks in modules that it has unloaded at exit.
inline ProgramResult run_app(int world, const std::string& program,
                             const std::vector<std::string>& options) {
  std::vector<std::string> argv;
  if (world > 0)
    argv = {"env", "ASAN_OPTIONS=" + variable("ASAN_OPTIONS") + ":detect_leaks=0",
            RINGSMITH_SOURCE_DIR "/tests/support/mpirun.sh", std::to_string(world)};
  argv.push_back(RINGSMITH_BINARY_DIR "/bin/" + program);
  argv.insert(argv.end(), options.begin(), options.end());
  return run_program(argv, 60);
}

inline std::vector<std::string> error_lines(const std::string& program, const std::string& err) {
  std::vector<std::string> out;
  std::istringstream in(err);
  for (std::string line; std::getline(in, line);)
    if (line.rfind(program + ": ", 0) == 0) out.push_back(line);
  return out;
}

inline std::vector<std::string> operator+(std::vector<std::string> a,
                                          const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline std::vector<std::string> tiny_gpt(const std::string& text) {
  return {"--data",  text, "--layers", "1", "--dim",    "16", "--heads",    "2",  "--context", "16",
          "--batch", "2",  "--steps",  "4", "--sample", "8",  "--progress", "off"};
}
inline std::vector<std::string> tiny_mlp() {
  return {"--draw", "200", "--hidden", "8", "--batch", "6", "--steps", "4", "--progress", "off"};
}
inline std::vector<std::string> tiny_images() {
  return {"--draw",  "60", "--model", "resnet18", "--width",    "4",
          "--batch", "6",  "--steps", "3",        "--progress", "off"};
}

inline std::vector<std::string> tiny_gpt_without_text() {
  const auto all = tiny_gpt("");
  return {all.begin() + 2, all.end()};
}

// Writes a shard of 16-bit tokens after llm.c's header.
inline std::string write_shard(const std::string& path, const std::vector<int>& tokens,
                               int version = 1) {
  std::string bytes;
  for (const std::uint32_t v :
       {20240520U, static_cast<unsigned>(version), static_cast<unsigned>(tokens.size())})
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(v >> 8 * i & 0xff);
  bytes.resize(1024);
  for (const int t : tokens) {
    bytes += static_cast<char>(t & 0xff);
    bytes += static_cast<char>(t >> 8);
  }
  return write_text(path, bytes);
}

// Writes a byte-pair vocabulary: the 256 bytes in order ("a" is number 97), then "in" and "ing".
inline std::string write_vocabulary(const std::string& path) {
  constexpr const char* kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (int i = 0; i < 256; ++i)
    text += std::string{kDigits[i >> 2], kDigits[(i & 3) << 4], '=', '=', ' '} + std::to_string(i) +
            "\n";
  return write_text(path, text + "aW4= 256\naW5n 257\n");
}

// Writes CIFAR-10's six files, each with one record per given label.
inline void write_cifar10(const std::string& folder, const std::vector<int>& labels) {
  std::filesystem::create_directories(folder);
  std::string bytes;
  for (const int label : labels) {
    bytes += static_cast<char>(label);
    for (int i = 0; i < 3072; ++i) bytes += static_cast<char>((i * (label + 3)) % 251);
  }
  for (int i = 1; i <= 5; ++i)
    write_text(folder + "/data_batch_" + std::to_string(i) + ".bin", bytes);
  write_text(folder + "/test_batch.bin", bytes);
}

// The program must have refused its input: the exit code of a usage error, and one line that has
// all of these words.
inline void require_refusal(const std::string& program, const ProgramResult& r,
                            const std::vector<std::string>& words) {
  constexpr int kUsage = 6;
  INFO(r.err);
  REQUIRE_FALSE(r.timed_out);
  CHECK(r.exit_code == kUsage);
  const auto lines = error_lines(program, r.err);
  REQUIRE(lines.size() == 1);
  for (const std::string& word : words) CHECK_THAT(lines[0], ContainsSubstring(word));
}

}  // namespace ringsmith::testing
