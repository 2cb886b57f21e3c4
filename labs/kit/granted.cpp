#include "labs/kit/granted.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace kit {
namespace {

// The judge's limit, too: the thread that samples may itself have waited for a processor.
constexpr double kLongestStep = 0.05;

double clock_seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

// Nothing here allocates, because labs measure the memory of a run: opendir() takes 32 KiB.
struct Text {
  char text[512];
  explicit Text(const char* path) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t got = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    text[std::max<ssize_t>(got, 0)] = 0;
  }
};

// The state follows the name, which is in parentheses and may contain some.
bool is_ready(const Text& stat) {
  const char* const end = std::strrchr(stat.text, ')');
  return end != nullptr && std::strncmp(end, ") R", 3) == 0;
}

// What getdents64(2) writes for each entry.
struct Entry {
  std::uint64_t inode;
  std::int64_t offset;
  std::uint16_t size;
  unsigned char type;
  char name[1];  // ends with 0
};

bool another_thread_is_ready() {
  const int threads = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (threads < 0) return false;
  char own[32];
  std::snprintf(own, sizeof own, "%d", int(gettid()));
  bool ready = false;
  alignas(Entry) char entries[2048];
  long got = 0;
  while (!ready && (got = syscall(SYS_getdents64, threads, entries, sizeof entries)) > 0)
    for (long at = 0; at < got && !ready;) {
      const Entry* const entry = reinterpret_cast<const Entry*>(entries + at);
      at += entry->size;
      if (entry->name[0] == '.' || std::strcmp(entry->name, own) == 0) continue;
      char path[64];
      std::snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", entry->name);
      ready = is_ready(Text(path));
    }
  close(threads);
  return ready;
}

}  // namespace

Granted::Granted()
    : last_(clock_seconds(CLOCK_MONOTONIC)), used_(clock_seconds(CLOCK_PROCESS_CPUTIME_ID)) {}

double Granted::seconds() {
  const double now = clock_seconds(CLOCK_MONOTONIC), used = clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
  const double step = std::min(now - last_, kLongestStep);
  total_ += another_thread_is_ready() ? std::min(step, used - used_) : step;
  last_ = now;
  used_ = used;
  return total_;
}

double queued_seconds() {
  const Text text("/proc/thread-self/schedstat");  // nanoseconds: run, queued
  unsigned long long ran = 0, queued = 0;
  return std::sscanf(text.text, "%llu %llu", &ran, &queued) == 2 ? 1e-9 * double(queued) : 0;
}

}  // namespace kit
