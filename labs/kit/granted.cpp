#include "labs/kit/granted.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <string>
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

std::string text_of(const std::string& path) {
  char text[512];
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  const ssize_t got = read(file, text, sizeof text);
  close(file);
  return {text, std::size_t(std::max<ssize_t>(got, 0))};
}

// The state follows the name, which is in parentheses and may contain some.
bool is_ready(const std::string& stat) {
  const std::size_t end = stat.rfind(')');
  return end != std::string::npos && stat.compare(end, 3, ") R") == 0;
}

bool another_thread_is_ready() {
  DIR* const threads = opendir("/proc/self/task");
  if (threads == nullptr) return false;
  const std::string own = std::to_string(gettid());
  bool ready = false;
  while (const dirent* const one = readdir(threads))
    if (!ready && one->d_name[0] != '.' && own != one->d_name)
      ready = is_ready(text_of("/proc/self/task/" + std::string(one->d_name) + "/stat"));
  closedir(threads);
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
  const std::string text = text_of("/proc/thread-self/schedstat");  // nanoseconds: run, queued
  unsigned long long ran = 0, queued = 0;
  return std::sscanf(text.c_str(), "%llu %llu", &ran, &queued) == 2 ? 1e-9 * double(queued) : 0;
}

}  // namespace kit
