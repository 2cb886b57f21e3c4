#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <unistd.h>

#include "runtime/base/error.hpp"
#include "tests/support/catch.hpp"

namespace ringsmith::test {

class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() /
              ("ringsmith_data_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string path() const { return path_; }
  template <class Bytes>
  [[nodiscard]] std::string write(const std::string& name, const Bytes& bytes) const {
    const std::string file = path_ / name;
    std::ofstream(file, std::ios::binary)
        .write(reinterpret_cast<const char*>(std::data(bytes)), std::ssize(bytes));
    return file;
  }

 private:
  std::filesystem::path path_;
};

// Requires that call() throws one line that names the file and contains the words.
template <class F>
void refuses(const F& call, const std::string& file, const std::string& words) {
  try {
    call();
    FAIL("accepted " << file);
  } catch (const UsageError& e) {
    const std::string message = e.what();
    CHECK_THAT(message, ContainsSubstring("'" + file + "'") && ContainsSubstring(words));
    CHECK(message.find('\n') == std::string::npos);
  }
}

}  // namespace ringsmith::test
