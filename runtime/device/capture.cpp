#include "runtime/device/capture.hpp"

#include <string>

#include "runtime/base/error.hpp"

namespace ringsmith::capture::detail {

void refuse(const char* action) {
  throw UsageError(std::string("a captured step cannot ") + action);
}

}  // namespace ringsmith::capture::detail
