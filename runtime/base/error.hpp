// Errors that say who, with whom, in which call and at which step.
//
// Every failure in ringsmith is an exception derived from Error. A failure inside a collective
// carries a Where: the rank that noticed, the peer it was dealing with, the operation, its sequence
// number and the step of its schedule. Binaries wrap their body in run_main(), which prints one
// line and turns the type of the error into the exit code (the table of nccl-tests, so that scripts
// can tell them apart).
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace ringsmith {

// Where a communication error happened. Negative numbers and empty strings mean "not applicable".
struct Where {
  int rank = -1;
  int peer = -1;
  std::string op;              // the call as the user wrote it, e.g. "all_reduce(sum, f32, 1024)"
  std::int64_t sequence = -1;  // number of the operation in its group, from 0
  std::int64_t step = -1;      // step of the schedule
  std::string site = {};       // of the call in the program: "train.cpp:120"
  std::string peer_host = {};  // of the peer's process
  std::int64_t peer_pid = -1;

  // "rank 2, peer 3, all_reduce(sum, f32, 1024) #41 at train.cpp:120, step 5"; empty if nothing is
  // set. The peer's process is in the message.
  [[nodiscard]] std::string describe() const;
};

// Exit codes of every ringsmith binary.
enum class ExitCode : int {
  ok = 0,
  internal = 1,
  cuda = 2,
  communication = 3,
  timeout = 4,
  not_implemented = 5,
  usage = 6,
  resources = 7,  // this process may not have more memory, files, threads ...
  preempted =
      75  // stopped by SIGTERM or SIGUSR1 after saving; EX_TEMPFAIL of sysexits.h: run again
};

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, Where where = {});
  [[nodiscard]] const Where& where() const noexcept { return where_; }
  [[nodiscard]] virtual ExitCode exit_code() const noexcept { return ExitCode::internal; }

 private:
  Where where_;
};

// Bad input: the message names the input and the remedy.
class UsageError : public Error {
 public:
  using Error::Error;
  [[nodiscard]] ExitCode exit_code() const noexcept override { return ExitCode::usage; }
};

// The system refused memory for a tensor: no peer is to blame.
class OutOfMemoryError : public Error {
 public:
  using Error::Error;
  [[nodiscard]] ExitCode exit_code() const noexcept override { return ExitCode::resources; }
};

// Any failure of communication; the five below are its named kinds.
class CommError : public Error {
 public:
  using Error::Error;
  [[nodiscard]] ExitCode exit_code() const noexcept override { return ExitCode::communication; }
};

// This process may not have more files, memory or threads: no peer is to blame.
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

// A peer process is gone; where() names its rank, host and pid.
class PeerLost : public CommError {
 public:
  using CommError::CommError;
};

// The group was ended by abort(), here or on another rank.
class Aborted : public CommError {
 public:
  using CommError::CommError;
};

// A deadline passed while waiting for a peer.
class TimeoutError : public CommError {
 public:
  using CommError::CommError;
  [[nodiscard]] ExitCode exit_code() const noexcept override { return ExitCode::timeout; }
};

// A call of the CUDA runtime failed, or a kernel that ran earlier did.
class CudaError : public Error {
 public:
  using Error::Error;
  [[nodiscard]] ExitCode exit_code() const noexcept override { return ExitCode::cuda; }
};

// Text from elsewhere, made safe for a terminal: UTF-8 characters stay; control characters, which
// begin a line, move the cursor or change colours, and bytes that are not UTF-8 become \xHH.
[[nodiscard]] std::string printable(std::string_view text);

// Throws UsageError: no memory holds this many elements of this size.
[[noreturn]] void throw_too_large(std::size_t elements, std::size_t element_size);

// Throws UsageError(message) unless the condition holds.
void require(bool condition, const std::string& message);

// Calls repair_inheritance() (process.hpp) and runs body(); on an exception prints "program: error:
// ..." as one line on standard error and returns the exit code of its type. Use it as the whole of
// main().
int run_main(const char* program, const std::function<int()>& body) noexcept;

}  // namespace ringsmith
