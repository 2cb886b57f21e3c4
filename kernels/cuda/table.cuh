// One launch for the arrays of many tensors: a table of them is an argument of the kernel.
//
//   tensors   0 (5 chunks)   1 (1 chunk)   2 (3 chunks)    a row each
//   chunks    0  1  2  3  4       5          6  7  8       dealt out to the blocks
//
// A block finds the tensor of a chunk by binary search. A separate launch for each of GPT-2's 97
// matrices and biases would take longer than most of the work.
#pragma once

#include <cstdint>

#include "kernels/cuda/grid.cuh"

namespace ringsmith::kernels::cuda {

constexpr std::size_t kArgumentBytes = 4096;  // limit of a kernel's arguments on older drivers

// Row: the pointers of a tensor. kChunk: elements that a block processes at a time.
template <class Row, int kMost, std::int64_t kChunk>
struct TensorTable {
  Row rows[kMost];
  std::int64_t sizes[kMost];
  std::int32_t first[kMost];  // index of the row's first chunk
  int count;
  std::int32_t chunks;

  [[nodiscard]] bool is_full() const { return count == kMost; }
  void add(const Row& row, std::int64_t n) {
    rows[count] = row;
    sizes[count] = n;
    first[count++] = chunks;
    chunks += static_cast<std::int32_t>(ceil_div(n, kChunk));
  }
  // Returns the row that contains the chunk: the last row whose first chunk is not after it.
  [[nodiscard]] __device__ int row_of(std::int32_t chunk) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (first[middle] <= chunk)
        low = middle;
      else
        high = middle;
    }
    return low;
  }
  // Calls f(row, begin, n) for this block's chunks: n elements, from element `begin` of the tensor.
  template <class F>
  __device__ void each_chunk(const F& f) const {
    for (auto chunk = static_cast<std::int32_t>(blockIdx.x); chunk < chunks;
         chunk += static_cast<std::int32_t>(gridDim.x)) {
      const int row = row_of(chunk);
      const std::int64_t begin = (chunk - first[row]) * kChunk;
      f(rows[row], begin, smaller(sizes[row] - begin, kChunk));
    }
  }
};

// Calls kernel(table, more...) for all tensors, in as few launches as the tables' size allows.
// row_of(tensor) makes a row, and size_of(tensor) returns the number of its elements.
template <class Table, class Tensors, class RowOf, class SizeOf, class Launch>
void for_each_table(const Tensors& tensors, const RowOf& row_of, const SizeOf& size_of,
                    const Launch& launch_table) {
  Table table{};
  const auto flush = [&] {
    if (table.count > 0) launch_table(table);
    table.count = table.chunks = 0;
  };
  for (const auto& t : tensors) {
    const std::int64_t n = size_of(t);
    if (n == 0) continue;
    if (table.is_full()) flush();
    table.add(row_of(t), n);
  }
  flush();
}

}  // namespace ringsmith::kernels::cuda
