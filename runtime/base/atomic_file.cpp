#include "runtime/base/atomic_file.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/core.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/base/process.hpp"

namespace ringsmith {

namespace fs = std::filesystem;

void cannot_write(const std::string& path, int error) {
  const std::string text = "cannot write '" + path + "': " + reason_of(error);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG || error == EIO) throw Error(text);
  throw UsageError(text);
}

void sync_folder(const std::string& folder, const std::string& path) {
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) cannot_write(path, errno);
  const bool synced = ::fsync(fd) == 0 || errno == EINVAL;  // EINVAL: not supported here
  const int reason = errno;
  ::close(fd);
  if (!synced) cannot_write(path, reason);
}

std::string random_name() {
  std::uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) != sizeof bits)
    throw Error(std::string("getrandom: ") + std::strerror(errno));
  return fmt::format("{:016x}", bits);
}

namespace {

std::string odd_kind(const struct stat& file) {
  if (S_ISREG(file.st_mode)) return "";
  if (S_ISDIR(file.st_mode)) return "a folder";
  if (S_ISFIFO(file.st_mode)) return "a FIFO";
  return S_ISSOCK(file.st_mode) ? "a socket" : "a device";
}

// Follows symbolic links to the final target, which need not exist yet.
fs::path behind_links(const std::string& path) {
  constexpr int kMostLinks = 40;  // the kernel's limit
  fs::path at = path;
  for (int links = 0; links < kMostLinks; ++links) {
    struct stat file {};
    if (::lstat(at.c_str(), &file) != 0 || !S_ISLNK(file.st_mode)) return at;
    // This check is like fs.protected_symlinks, which does not apply to links followed in user
    // space, but it covers every world-writable folder, sticky or not.
    struct stat folder {};
    const fs::path parent = at.has_parent_path() ? at.parent_path() : fs::path(".");
    if (::stat(parent.c_str(), &folder) == 0 && (folder.st_mode & S_IWOTH) != 0 &&
        file.st_uid != ::geteuid() && file.st_uid != folder.st_uid)
      throw UsageError(
          fmt::format("cannot write '{}': user {} has put a symbolic link there, in a "
                      "world-writable folder; remove it",
                      path, file.st_uid));
    std::error_code error;
    at = parent / fs::read_symlink(at, error);
    if (error) cannot_write(path, error.value());
  }
  cannot_write(path, ELOOP);
}

}  // namespace

std::string odd_kind(const std::string& path) {
  struct stat file {};
  return ::stat(path.c_str(), &file) == 0 ? odd_kind(file) : "";
}

AtomicFile::AtomicFile(const std::string& path) {
  if (const std::string kind = odd_kind(path); !kind.empty())
    throw UsageError("cannot write '" + path + "': it is " + kind + "; name a file");
  path_ = behind_links(path);
  struct stat before {};
  const bool replaces = ::stat(path_.c_str(), &before) == 0;
  std::string temporary = path_ + ".tmp." + random_name();
  fd_ = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd_ < 0) cannot_write(path, errno);
  temporary_ = std::move(temporary);
  // Keeps the file's permissions, if the file system has any.
  if (replaces) (void)!::fchmod(fd_, before.st_mode & 0777);
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

void AtomicFile::reserve(std::uint64_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) cannot_write(path_, EFBIG);
  if (bytes == 0) return;
  const int error = ::posix_fallocate(fd_, 0, static_cast<off_t>(bytes));
  if (error != 0 && error != EINVAL && error != EOPNOTSUPP) cannot_write(path_, error);
}

void write_atomically(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

void try_to_write(const std::string& path, std::uint64_t bytes) { AtomicFile(path).reserve(bytes); }

}  // namespace ringsmith
