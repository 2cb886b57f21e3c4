// A call of the CUDA runtime failed, or a kernel that ran earlier did.
#pragma once

#include "runtime/base/error.hpp"

namespace ringsmith {

class CudaError : public Error {
 public:
  using Error::Error;
  [[nodiscard]] ExitCode exit_code() const noexcept override { return ExitCode::cuda; }
};

}  // namespace ringsmith
