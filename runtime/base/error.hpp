// Errors that name the rank, the peer, the call and the step.
//
// Every failure that ringsmith detects is an exception derived from Error. A failure inside a
// collective carries a Where: the rank that noticed, its peer, the operation and its sequence
// number, and the step of its schedule. Programs wrap their body in run_main(), which prints one
// line and converts the type of the error to an exit code (0 to 5 as in nccl-tests), so that
// scripts can distinguish the types.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace ringsmith {

// Negative numbers and empty strings mean "not applicable".
struct Where {
  int rank = -1;
  int peer = -1;
  std::string op;              // the call as the user wrote it, e.g. "all_reduce(sum, f32, 1024)"
  std::int64_t sequence = -1;  // number of the operation in its group, from 0
  std::int64_t step = -1;      // step of the schedule
  std::string site = {};       // the call in the program: "train.cpp:120"
  std::string peer_host = {};  // host of the peer's process
  std::int64_t peer_pid = -1;

  // Returns "rank 2, peer 3, all_reduce(sum, f32, 1024) #41 at train.cpp:120, step 5"; empty if
  // nothing is set. Omits the peer's host and pid, which the message names.
  [[nodiscard]] std::string describe() const;
};

enum class ExitCode : int {
  ok = 0,
  internal = 1,
  cuda = 2,
  communication = 3,
  timeout = 4,
  not_implemented = 5,
  usage = 6,
  resources = 7,  // a limit on memory, files, threads, ... was reached
  preempted = 75  // stopped by a signal after saving; EX_TEMPFAIL of sysexits.h
};

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, Where where = {});
  [[nodiscard]] const Where& where() const noexcept { return where_; }
  [[nodiscard]] virtual ExitCode exit_code() const noexcept { return ExitCode::internal; }

 private:
  Where where_;
};

// Invalid input: the message names the input and the remedy.
class UsageError : public Error {
 public:
  using Error::Error;
  [[nodiscard]] ExitCode exit_code() const noexcept override { return ExitCode::usage; }
};

// The system refused memory for a tensor.
class OutOfMemoryError : public Error {
 public:
  using Error::Error;
  [[nodiscard]] ExitCode exit_code() const noexcept override { return ExitCode::resources; }
};

// Any communication failure.
class CommError : public Error {
 public:
  using Error::Error;
  [[nodiscard]] ExitCode exit_code() const noexcept override { return ExitCode::communication; }
};

// A limit on files, memory, threads or processes was reached, this process's or the machine's. No
// peer is at fault.
class ResourceError : public CommError {
 public:
  using CommError::CommError;
  [[nodiscard]] ExitCode exit_code() const noexcept override { return ExitCode::resources; }
};

// Two ranks are in different calls; the message names both.
class MismatchError : public CommError {
 public:
  using CommError::CommError;
};

// A peer has ended, has left the group or cannot be reached; where() names its rank and, if they
// are known, its host and pid.
class PeerLost : public CommError {
 public:
  using CommError::CommError;
};

// abort() has ended the group, here or on another rank.
class Aborted : public CommError {
 public:
  using CommError::CommError;
};

// A deadline passed during a wait for a peer.
class TimeoutError : public CommError {
 public:
  using CommError::CommError;
  [[nodiscard]] ExitCode exit_code() const noexcept override { return ExitCode::timeout; }
};

// A CUDA runtime call or a previously launched kernel failed.
class CudaError : public Error {
 public:
  using Error::Error;
  [[nodiscard]] ExitCode exit_code() const noexcept override { return ExitCode::cuda; }
};

// Makes text from elsewhere safe for a terminal. Control characters, which could move the cursor or
// change colours, and bytes that are not UTF-8 become \xHH. All other characters are kept.
[[nodiscard]] std::string printable(std::string_view text);

// Throws a UsageError, because this many elements of this size do not fit into any memory.
[[noreturn]] void throw_too_large(std::size_t elements, std::size_t element_size);

void require(bool condition, const std::string& message);

// Forms the whole body of main(). Calls repair_inheritance() (process.hpp) and runs body(). If
// body() throws, prints one line such as "program: error: ..." on standard error (none for a
// preemption without text) and returns the exit code of the exception's type. Lost output is an
// error, too.
int run_main(const char* program, const std::function<int()>& body) noexcept;

}  // namespace ringsmith
