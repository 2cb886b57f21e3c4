// The errors of NCCL's interface: a number, and for the thread the sentence that goes with it.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "labs/nccl/nccl.h"

namespace ringsmith::nccl {

// An error that knows its number.
class Refusal : public std::exception {
 public:
  Refusal(ncclResult_t result, std::string text) : result_(result), text_(std::move(text)) {}
  [[nodiscard]] ncclResult_t result() const { return result_; }
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

 private:
  ncclResult_t result_;
  std::string text_;
};

// Remembers the sentence for ncclGetLastError() on this thread; returns the number.
ncclResult_t fail(ncclResult_t result, std::string text);
[[nodiscard]] const std::string& last_text();

// The number and the words for the exception that is being handled.
[[nodiscard]] Refusal current_refusal();

// body(); its exceptions become numbers and words that begin with the name of the call.
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
