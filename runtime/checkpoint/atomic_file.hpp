// A file that appears complete or not at all.
//
//   write to NAME.tmp.PID -> fsync the file -> rename to NAME -> fsync the folder
//
// Without the first fsync a crash may leave the new name with empty contents; without the second,
// the rename itself may be lost.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace ringsmith {

class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();  // without commit(), the temporary file is removed and nothing has happened
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // All three throw "cannot write 'PATH': reason": UsageError if the path is at fault, Error if the
  // disk is (full, broken).
  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  [[noreturn]] void fail(int error) const;
  std::string path_;
  std::string temporary_;
  int fd_ = -1;
};

}  // namespace ringsmith
