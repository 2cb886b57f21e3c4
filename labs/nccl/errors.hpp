// The errors of NCCL's interface: a result code, and a message that is stored per thread.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "labs/nccl/nccl.h"

namespace ringsmith::nccl {

class Refusal : public std::exception {
 public:
  Refusal(ncclResult_t result, std::string text) : result_(result), text_(std::move(text)) {}
  [[nodiscard]] ncclResult_t result() const { return result_; }
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

 private:
  ncclResult_t result_;
  std::string text_;
};

// Stores the message for ncclGetLastError() on this thread; returns the code.
ncclResult_t fail(ncclResult_t result, std::string text);
[[nodiscard]] const std::string& last_text();

// Returns the code and the message of the exception that is being handled.
[[nodiscard]] Refusal current_refusal();

// Runs body(); converts its exceptions to codes, with messages that begin with the call's name.
template <class Body>
ncclResult_t guarded(const char* call, Body&& body) noexcept {
  try {
    body();
    return ncclSuccess;
  } catch (...) {
    const Refusal refusal = current_refusal();
    return fail(refusal.result(), std::string(call) + ": " + refusal.what());
  }
}

}  // namespace ringsmith::nccl
