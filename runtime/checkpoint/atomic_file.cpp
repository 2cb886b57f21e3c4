#include "runtime/checkpoint/atomic_file.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>
#include <utility>

#include "runtime/base/error.hpp"

namespace ringsmith {

void cannot_write(const std::string& path, int error) {
  const std::string text = "cannot write '" + path + "': " + std::strerror(error);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG || error == EIO) throw Error(text);
  throw UsageError(text);
}

void sync_folder(const std::string& folder, const std::string& path) {
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) cannot_write(path, errno);
  const bool synced = ::fsync(fd) == 0 || errno == EINVAL;  // some file systems cannot
  const int reason = errno;
  ::close(fd);
  if (!synced) cannot_write(path, reason);
}

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)), temporary_(path_ + ".tmp." + std::to_string(::getpid())) {
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) cannot_write(path_, errno);
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) cannot_write(path_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

void AtomicFile::commit() {
  if (::fsync(fd_) != 0) cannot_write(path_, errno);
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) cannot_write(path_, errno);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) cannot_write(path_, errno);
  temporary_.clear();
  sync_folder(std::filesystem::path(path_).parent_path(), path_);
}

}  // namespace ringsmith
