// There is one version only, because simple loops over contiguous rows run at memory speed.
#include "kernels/embedding.hpp"

#include <algorithm>
#include <cstddef>
#include <string>

#include "runtime/base/error.hpp"

namespace ringsmith::kernels::cpu {

void check_indices(const char* op, std::span<const std::int64_t> index, std::int64_t rows) {
  for (std::size_t i = 0; i < index.size(); ++i)
    require(index[i] >= 0 && index[i] < rows,
            std::string(op) + ": index " + std::to_string(index[i]) + " at position " +
                std::to_string(i) + " is outside [0, " + std::to_string(rows) + ")");
}

template <class T>
void embedding(std::span<const T> weight, std::int64_t dim, std::span<const std::int64_t> index,
               std::span<T> out) {
  for (std::size_t i = 0; i < index.size(); ++i)
    std::copy_n(weight.data() + index[i] * dim, dim,
                out.data() + static_cast<std::int64_t>(i) * dim);
}

template <class T>
void embedding_backward(std::span<const T> dy, std::int64_t dim,
                        std::span<const std::int64_t> index, std::span<T> dweight) {
  for (std::size_t i = 0; i < index.size(); ++i) {
    const T* from = dy.data() + static_cast<std::int64_t>(i) * dim;
    T* to = dweight.data() + index[i] * dim;
    for (std::int64_t j = 0; j < dim; ++j) to[j] += from[j];
  }
}

RINGSMITH_FLOAT_AND_DOUBLE(embedding)
RINGSMITH_FLOAT_AND_DOUBLE(embedding_backward)

}  // namespace ringsmith::kernels::cpu
