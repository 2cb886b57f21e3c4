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

// Throws "cannot write 'PATH': reason" for an errno: UsageError if the path is at fault, Error if
// the disk is (full, broken).
[[noreturn]] void cannot_write(const std::string& path, int error);

// Makes the names in a folder durable, where the file system can: the second fsync. Throws as
// cannot_write(), with what was to be written there as the path.
void sync_folder(const std::string& folder, const std::string& path);

class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();  // without commit(), the temporary file is removed and nothing has happened
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // All three throw "cannot write 'PATH': reason", as cannot_write().
  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  std::string path_;
  std::string temporary_;
  int fd_ = -1;
};

}  // namespace ringsmith
