// Rows of a table by number, and the way back.
//
//   forward    a thread a pack of the result
//   backward   dweight[index[i]] += dy[i], in the order of i. Floating atomics would add in another
//              order in every run, so each row first gets the list of its uses, by counting:
//
//                index  2 0 2 1 2        count the uses of each row          1 1 3
//                                        give each used row a piece          0 1 2
//                                        drop each use into its row's piece  1 | 3 | 4 0 2
//                                        sort each piece                     1 | 3 | 0 2 4
//                                        add its rows of dy, first to last
//
//              The counters are integers: what their atomics leave open, which piece comes first
//              and the order within, no sum can see. Sorting is quadratic in the uses of one row.
#include <string>

#include "kernels/cuda/first_bad.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/scratch.hpp"
#include "kernels/cuda/strided.cuh"
#include "kernels/embedding.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith::kernels::cuda {

void check_indices(const char* op, std::span<const std::int64_t> index, std::int64_t rows) {
  const std::int64_t* const at = index.data();
  const auto bad = first_bad(std::ssize(index),
                             [=] __device__(std::int64_t i) { return at[i] < 0 || at[i] >= rows; });
  if (bad)
    throw UsageError(std::string(op) + ": index " + std::to_string(read_back(at + *bad)) +
                     " at position " + std::to_string(*bad) + " is outside [0, " +
                     std::to_string(rows) + ")");
}

namespace {

template <int kWidth, class T>
__global__ void gather(const T* weight, std::int64_t row_packs, const std::int64_t* index,
                       std::int64_t packs, T* out) {
  for (std::int64_t p = first_item(); p < packs; p += item_stride()) {
    std::int64_t i = p;
    const std::int64_t within = take_digit(i, row_packs);
    store_pack(out, p, load_pack<kWidth>(weight, index[i] * row_packs + within));
  }
}

// For every row of the table: how often it is used, and where its piece of `uses` begins.
struct Uses {
  unsigned *count, *begin, *filled, *total;
  std::int64_t *unsorted, *sorted;  // n positions
};

// The pieces of `uses.sorted`, each in ascending order.
void sort_uses(std::int64_t n, const std::int64_t* index, std::int64_t rows, const Uses& uses) {
  for_each(n, [=] __device__(std::int64_t i) { atomicAdd(&uses.count[index[i]], 1U); });
  for_each(rows, [=] __device__(std::int64_t row) {
    if (uses.count[row] > 0) uses.begin[row] = atomicAdd(uses.total, uses.count[row]);
  });
  for_each(n, [=] __device__(std::int64_t i) {
    const std::int64_t row = index[i];
    uses.unsorted[uses.begin[row] + atomicAdd(&uses.filled[row], 1U)] = i;
  });
  for_each(n, [=] __device__(std::int64_t i) {
    const std::int64_t row = index[i];
    const unsigned begin = uses.begin[row], end = begin + uses.count[row];
    unsigned smaller = 0;
    for (unsigned u = begin; u < end; ++u) smaller += uses.unsorted[u] < i ? 1 : 0;
    uses.sorted[begin + smaller] = i;
  });
}

}  // namespace

template <class T>
void embedding(std::span<const T> weight, std::int64_t dim, std::span<const std::int64_t> index,
               std::span<T> out) {
  const std::int64_t n = std::ssize(index) * dim;
  if (n == 0) return;
  constexpr int kWidth = kPack<T>;
  if (dim % kWidth == 0 && aligned(weight.data(), out.data()))
    launch_over(gather<kWidth, T>, n / kWidth, kThreads, weight.data(), dim / kWidth, index.data(),
                n / kWidth, out.data());
  else
    launch_over(gather<1, T>, n, kThreads, weight.data(), dim, index.data(), n, out.data());
}

template <class T>
void embedding_backward(std::span<const T> dy, std::int64_t dim,
                        std::span<const std::int64_t> indices, std::span<T> dweight) {
  const std::int64_t n = std::ssize(indices);
  if (n == 0 || dim == 0) return;
  const std::int64_t rows = std::ssize(dweight) / dim;
  const std::int64_t* const index = indices.data();
  const Scratch<unsigned> counters(3 * rows + 1);
  const Scratch<std::int64_t> positions(2 * n);
  const Uses uses{counters.data(),        counters.data() + 2 * rows,
                  counters.data() + rows, counters.data() + 3 * rows,
                  positions.data(),       positions.data() + n};
  cuda_check(cudaMemsetAsync(counters.data(), 0,
                             static_cast<std::size_t>(3 * rows + 1) * sizeof(unsigned), stream()));
  sort_uses(n, index, rows, uses);
  const T* const from = dy.data();
  T* const to = dweight.data();
  // One thread an element of every use; those of a row's first use do the row's work.
  for_each(n * dim, [=] __device__(std::int64_t element) {
    std::int64_t u = element;
    const std::int64_t column = take_digit(u, dim);
    const std::int64_t row = index[uses.sorted[u]];
    if (u != uses.begin[row]) return;
    T sum = to[row * dim + column];
    for (std::int64_t end = u + uses.count[row]; u < end; ++u)
      sum += from[uses.sorted[u] * dim + column];
    to[row * dim + column] = sum;
  });
}

RINGSMITH_FLOAT_AND_DOUBLE(embedding)
RINGSMITH_FLOAT_AND_DOUBLE(embedding_backward)

}  // namespace ringsmith::kernels::cuda
