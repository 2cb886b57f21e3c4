// Simulates a full disk: while the object exists, this process's files cannot grow beyond a few
// bytes.
#pragma once

#include <csignal>
#include <sys/resource.h>

namespace ringsmith::testing {

class TinyFiles {
 public:
  explicit TinyFiles(rlim_t most) : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit tiny{most, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &tiny);
  }
  ~TinyFiles() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, old_handler_);
  }
  TinyFiles(const TinyFiles&) = delete;
  TinyFiles& operator=(const TinyFiles&) = delete;

 private:
  rlimit before_{};
  void (*old_handler_)(int);
};

}  // namespace ringsmith::testing
