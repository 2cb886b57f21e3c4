// A file that appears complete or not at all.
//
//   write to NAME.tmp.RANDOM -> fsync the file -> rename to NAME -> fsync the folder
//
// Without the first fsync a crash may leave the new name with empty contents; without the second,
// the rename itself may be lost.
//
// Another user with write access to the folder cannot redirect the write: the random name cannot be
// guessed, and the file is created (O_EXCL), never opened. NAME may be a symbolic link: then the
// file that it names is replaced, unless another user has put the link into a folder that everybody
// may write to. A folder, a device, a FIFO or a socket of that name is refused, and stays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ringsmith {

// Throws "cannot write 'PATH': reason" for an errno: UsageError if the path is at fault, Error if
// the disk is (full, broken).
[[noreturn]] void cannot_write(const std::string& path, int error);

// Makes the names in a folder durable, where the file system can: the second fsync. Throws as
// cannot_write(), with what was to be written there as the path.
void sync_folder(const std::string& folder, const std::string& path);

// 16 hexadecimal digits that nobody can guess.
[[nodiscard]] std::string random_name();

// "a folder", "a device", "a FIFO" or "a socket" if the path, or the target of a link there, is
// one; empty for a regular file, or if nothing is there. Call it before open(): open() waits for
// the other side of a FIFO, without a deadline.
[[nodiscard]] std::string odd_kind(const std::string& path);

class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();  // without commit(), the temporary file is removed and nothing has happened
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // All throw "cannot write 'PATH': reason", as cannot_write().
  void write(std::span<const std::byte> bytes);
  void commit();
  void reserve(std::uint64_t bytes);  // the disk has room for them now

 private:
  std::string path_;
  std::string temporary_;
  int fd_ = -1;
};

// The whole file.
void write_atomically(const std::string& path, const std::string& text);

// Throws if writing a file of this many bytes would fail now. Leaves nothing behind. Call it before
// the work whose result the file will hold.
void try_to_write(const std::string& path, std::uint64_t bytes = 0);

}  // namespace ringsmith
