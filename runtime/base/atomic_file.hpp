// A file that appears completely or not at all.
//
//   write to NAME.tmp.RANDOM -> fsync the file -> rename to NAME -> fsync the folder
//
// Without the first fsync, a crash may leave the new name with empty contents; without the second,
// it may undo the rename.
//
// Another user with write access to the folder cannot redirect the write: the random name cannot be
// guessed, and the file is created with O_EXCL. If NAME is a symbolic link, its target is replaced,
// unless the folder is world-writable and the link belongs neither to this user nor to the folder's
// owner. A folder, a device, a FIFO or a socket with that name is refused and left unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ringsmith {

// Throws "cannot write 'PATH': reason" for an errno: Error if the disk is full or broken or the
// file would be too large, otherwise UsageError.
[[noreturn]] void cannot_write(const std::string& path, int error);

// Makes the names in a folder durable (the second fsync), if the file system supports it. Throws
// what cannot_write() throws; the message names the file `path`.
void sync_folder(const std::string& folder, const std::string& path);

// Returns 16 unpredictable hexadecimal digits.
[[nodiscard]] std::string random_name();

// Returns the kind of a path that is not a regular file ("a folder", "a device", "a FIFO" or "a
// socket"), following links; "" for a regular file, or if the path cannot be examined, e.g. because
// nothing is there. Call it before open(), which would wait for the other end of a FIFO without a
// deadline.
[[nodiscard]] std::string odd_kind(const std::string& path);

class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();  // without commit(), removes the temporary file; NAME is unchanged
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // All three throw what cannot_write() throws.
  void write(std::span<const std::byte> bytes);
  void commit();
  void reserve(std::uint64_t bytes);  // allocates disk space now

 private:
  std::string path_;
  std::string temporary_;
  int fd_ = -1;
};

void write_atomically(const std::string& path, const std::string& text);

// Throws if writing a file of this many bytes would fail now. Leaves no file behind.
void try_to_write(const std::string& path, std::uint64_t bytes = 0);

}  // namespace ringsmith
