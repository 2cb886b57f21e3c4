// A batch dealt to the replicas, and what they made of it put together again.
//
//   batch of 10 rows, 4 replicas     rows each: ceil(10 / 4) = 3
//
//   |0 1 2|3 4 5|6 7 8|9|            the last has fewer; a batch of 5 would make 2 + 2 + 1: three
//    r0    r1    r2    r3            chunks, and the fourth replica stays idle
//
// PyTorch's rule (torch.chunk). Nothing here records a graph; data_parallel.cpp does, for both
// ways.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

// Row at which each chunk begins, and the number of rows: one element more than there are chunks.
// One empty chunk if there are no rows. replicas > 0.
[[nodiscard]] std::vector<std::int64_t> chunk_starts(std::int64_t rows, std::size_t replicas);

// Memory of its own with t's values: for another replica, which may be on the same device.
[[nodiscard]] Tensor copy_to(const Tensor& t, Device device);

// The rows of each chunk. The first is a view of batch, the others are copies on their devices.
[[nodiscard]] std::vector<Tensor> scatter(const Tensor& batch,
                                          const std::vector<std::int64_t>& starts,
                                          const std::vector<Device>& devices);

// Parts, one below the other, on root. Parts without dimensions become a vector, as in PyTorch.
// UsageError naming the replicas whose shapes or dtypes do not fit.
[[nodiscard]] Tensor gather(const std::vector<Tensor>& parts, Device root);

// The rows that part i has in gather()'s result.
[[nodiscard]] std::vector<std::int64_t> part_starts(const std::vector<Tensor>& parts);

}  // namespace ringsmith
