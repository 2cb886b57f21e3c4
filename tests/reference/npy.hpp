// Reads the .npy files of the reference sets: little-endian float32 and int64, C order.
//
//   "\x93NUMPY" major minor | header length (2 bytes in version 1, else 4) | header | raw values
//   header: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "runtime/tensor/tensor.hpp"

namespace ringsmith::reference {

template <class T>
struct NpyArray {
  Shape shape;
  std::vector<T> values;  // row-major
};

// T: float or std::int64_t. Throws UsageError with the file's path if the file is missing,
// truncated or of another type.
template <class T>
[[nodiscard]] NpyArray<T> read_npy(const std::filesystem::path& file);

}  // namespace ringsmith::reference
