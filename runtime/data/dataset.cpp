#include "runtime/data/dataset.hpp"

#include <string>

#include "runtime/base/error.hpp"

namespace ringsmith {

void Dataset::check_index(std::int64_t index) const {
  if (index < 0 || index >= size())
    throw UsageError("sample " + std::to_string(index) + " of a dataset of " +
                     std::to_string(size()) + ": indices run from 0 to size - 1");
}

}  // namespace ringsmith
