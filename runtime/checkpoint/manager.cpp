#include "runtime/checkpoint/manager.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <unistd.h>
#include <utility>

#include "runtime/base/atomic_file.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/tracer.hpp"

namespace ringsmith {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse(const std::string& path, int error) {
  throw UsageError("cannot write '" + path + "': " + std::strerror(error) +
                   "; choose a writable folder for checkpoints");
}

// Locks the folder and writes this process into the lock file. The lock ends with the process, even
// if kill -9 ends it.
Descriptor lock_folder(const std::string& folder) {
  const std::string path = fs::path(folder) / "lock";
  if (const std::string kind = odd_kind(path); !kind.empty())
    throw UsageError("cannot write '" + path + "': it is " + kind + "; remove it");
  Descriptor lock(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!lock.valid() && errno == ELOOP)
    throw UsageError("cannot write '" + path + "': it is a symbolic link; remove it");
  if (!lock.valid()) refuse(path, errno);
  std::array<char, 256> holder{};
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return lock;  // the file system has no locks
    const ssize_t n = ::pread(lock.get(), holder.data(), holder.size() - 1, 0);
    throw UsageError(
        "checkpoints '" + folder + "' are in use by another process" +
        (n > 0 ? " (" + std::string(holder.data()) + ")" : "") +
        ": only one rank of one job may write there; wait until it ends, or choose another "
        "folder");
  }
  const std::string me = process_place();
  if (::ftruncate(lock.get(), 0) != 0 || ::pwrite(lock.get(), me.data(), me.size(), 0) < 0)
    cannot_write(path, errno);
  return lock;
}

std::size_t checked_keep(int keep) {
  require(keep >= 1, "checkpoints: at least 1 must be kept, got " + std::to_string(keep));
  return static_cast<std::size_t>(keep);
}

std::string made(std::string folder) {
  std::error_code error;
  if (fs::create_directory(folder, error)) sync_folder(fs::path(folder).parent_path(), folder);
  if (error) refuse(folder, error.value());
  return folder;
}

}  // namespace

CheckpointManager::CheckpointManager(std::string folder, int keep)
    : keep_(checked_keep(keep)), folder_(made(std::move(folder))), lock_(lock_folder(folder_)) {}

CheckpointManager::~CheckpointManager() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (writer_.joinable()) writer_.join();
}

std::optional<Snapshot> CheckpointManager::load_newest(
    const std::function<void(const std::string&)>& skipped,
    const std::function<void(const Snapshot&)>& examine) {
  wait();
  const auto skip = [&](const std::string& path, const std::string& why) {
    skipped(why);
    useless_.insert(path);
  };
  return newest_snapshot(folder_, skip, examine);
}

void CheckpointManager::save(Snapshot snapshot) {
  hold(std::move(snapshot));
  release();
}

void CheckpointManager::hold(Snapshot snapshot) {
  wait();
  const trace::Span span("copy for a checkpoint", trace::Category::frame);
  for (auto& [file, tensors] : snapshot.tensors)
    for (auto& [name, tensor] : tensors)
      tensor = tensor.device().is_cpu() ? tensor.clone() : tensor.cpu();
  held_ = std::move(snapshot);
}

void CheckpointManager::release() {
  if (!held_) return;
  if (!writer_.joinable()) writer_ = std::thread([this] { work(); });
  {
    const std::lock_guard lock(mutex_);
    job_ = std::exchange(held_, std::nullopt);
  }
  changed_.notify_all();
}

void CheckpointManager::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !job_.has_value(); });
  failed_.store(false, std::memory_order_release);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

bool CheckpointManager::wait_for(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, Deadline::in(most).at(), [&] { return !job_.has_value(); });
}

void CheckpointManager::work() {
  trace::name_thread("checkpoints");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || job_.has_value(); });
    if (!job_) return;
    lock.unlock();  // only this thread accesses the job until it is done
    std::exception_ptr error;
    try {
      write(*job_);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    job_.reset();
    error_ = error;
    failed_.store(error != nullptr, std::memory_order_release);
    changed_.notify_all();
  }
}

void CheckpointManager::write(const Snapshot& snapshot) {
  const trace::Span span("write a checkpoint", trace::Category::frame);
  const std::string mine = fs::path(folder_) / snapshot_name(snapshot.step);
  write_snapshot(mine, snapshot);
  useless_.erase(mine);
  std::size_t kept = 0;
  for (auto all = list_snapshots(folder_); !all.empty(); all.pop_back()) {
    const auto& [step, path] = all.back();
    if (step > snapshot.step) continue;  // written by a run that got further: keep it
    remove_snapshot(path + ".new");      // left by a process that was killed in write_snapshot()
    const bool useful = useless_.count(path) == 0 && has_manifest(path);
    if (!useful || ++kept > keep_) remove_snapshot(path);
  }
}

}  // namespace ringsmith
