#include "labs/torch/gathered.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "labs/torch/errors.hpp"
#include "labs/torch/flat.hpp"

namespace ringsmith::pytorch {

namespace {

std::size_t world_of(const comm::ProcessGroup& group) {
  return static_cast<std::size_t>(group.size());
}

// into[i] = into[i] op from[i]. Bits of an element never meet those of another, so the element type
// does not matter.
void fold(std::byte* into, const std::byte* from, std::size_t bytes, BitOp op) {
  const auto each = [&](auto combine) { std::transform(into, into + bytes, from, into, combine); };
  switch (op) {
    case BitOp::band:
      return each([](std::byte a, std::byte b) { return a & b; });
    case BitOp::bor:
      return each([](std::byte a, std::byte b) { return a | b; });
    case BitOp::bxor:
      return each([](std::byte a, std::byte b) { return a ^ b; });
  }
}

// Folds `count` blocks of `bytes` into the first.
void fold_blocks(std::byte* blocks, std::size_t bytes, std::size_t count, BitOp op) {
  for (std::size_t b = 1; b < count; ++b) fold(blocks, blocks + b * bytes, bytes, op);
}

// Gathers `bytes` from each rank. The caller's `fill` writes this rank's block in its place.
std::byte* gather(comm::ProcessGroup& group, const Scratch& scratch, std::size_t bytes,
                  comm::Site site, const std::function<void(std::byte*)>& fill) {
  std::byte* const all = scratch(bytes * world_of(group));
  std::byte* const mine = all + static_cast<std::size_t>(group.rank()) * bytes;
  fill(mine);
  group.all_gather(comm::ConstBuffer(mine, Elements(bytes), DType::u8, site),
                   comm::Buffer(all, Elements(bytes * world_of(group)), DType::u8, site));
  return all;
}

// ---- sparse tensors ----
constexpr std::size_t kMostDims = 16;
constexpr std::size_t kAlignment = 64;  // bytes, of each rank's block

// A rank's sparse tensor, without its values.
struct Outline {
  std::int64_t type = 0, sparse_dims = 0, dims = 0, entries = 0;
  std::array<std::int64_t, kMostDims> sizes{};

  [[nodiscard]] bool fits(const Outline& o) const {
    return type == o.type && sparse_dims == o.sparse_dims && dims == o.dims && sizes == o.sizes;
  }
  [[nodiscard]] std::string text() const {
    std::string shape;
    for (std::size_t d = 0; d < static_cast<std::size_t>(dims); ++d)
      shape += (d == 0 ? "" : ", ") + std::to_string(sizes[d]);
    return std::string(at::toString(static_cast<at::ScalarType>(type))) + " [" + shape + "] with " +
           std::to_string(sparse_dims) + " sparse dimensions";
  }
};
constexpr std::size_t kOutlineWords = sizeof(Outline) / sizeof(std::int64_t);

Outline outline_of(const at::Tensor& tensor) {
  if (static_cast<std::size_t>(tensor.dim()) > kMostDims)
    throw UsageError("all_reduce: a sparse tensor may have " + std::to_string(kMostDims) +
                     " dimensions at most, got " + std::to_string(tensor.dim()));
  Outline outline{static_cast<std::int64_t>(tensor.scalar_type()),
                  tensor.sparse_dim(),
                  tensor.dim(),
                  tensor._nnz(),
                  {}};
  std::ranges::copy(tensor.sizes(), outline.sizes.begin());
  return outline;
}

std::vector<Outline> gather_outlines(comm::ProcessGroup& group, const Outline& mine,
                                     comm::Site site) {
  std::vector<Outline> all(world_of(group));
  const auto words = [&](auto* outlines, std::size_t count) {
    return std::span(reinterpret_cast<std::int64_t*>(outlines), count * kOutlineWords);
  };
  Outline copy = mine;
  group.all_gather(comm::ConstBuffer(words(&copy, 1), site),
                   comm::Buffer(words(all.data(), all.size()), site));
  for (std::size_t r = 0; r < all.size(); ++r)
    if (!mine.fits(all[r]))
      throw MismatchError("rank " + std::to_string(group.rank()) +
                              " called all_reduce of a sparse " + mine.text() + ", but rank " +
                              std::to_string(r) + " of a sparse " + all[r].text() +
                              ": all ranks must pass the same type and shape",
                          seen_by(group.rank(), static_cast<int>(r)));
  return all;
}

}  // namespace

std::optional<BitOp> bit_op_of(const c10d::ReduceOp& op) {
  switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::BAND:
      return BitOp::band;
    case c10d::ReduceOp::BOR:
      return BitOp::bor;
    case c10d::ReduceOp::BXOR:
      return BitOp::bxor;
    default:
      return std::nullopt;
  }
}

void check_bits(const char* call, const at::Tensor& tensor) {
  if (!at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true))
    throw UsageError(std::string(call) + ": BAND, BOR and BXOR need an integral type, got " +
                     at::toString(tensor.scalar_type()));
}

void all_reduce_bits(comm::ProcessGroup& group, const Scratch& scratch, const at::Tensor& data,
                     BitOp op, bool keeps, comm::Site site) {
  const std::size_t bytes = data.nbytes();
  std::byte* const all =
      gather(group, scratch, bytes, site, [&](std::byte* mine) { copy_out(data, mine); });
  if (!keeps) return;
  fold_blocks(all, bytes, world_of(group), op);
  copy_in(all, data);
}

void reduce_scatter_bits(comm::ProcessGroup& group, const Scratch& scratch,
                         const std::vector<at::Tensor>& parts, const at::Tensor& output, BitOp op,
                         comm::Site site) {
  const std::size_t world = world_of(group), bytes = output.nbytes();
  std::byte* const memory = scratch(2 * world * bytes);
  std::byte* const arrived = memory + world * bytes;
  for (std::size_t r = 0; r < world; ++r) copy_out(parts[r], memory + r * bytes);
  group.all_to_all(comm::ConstBuffer(memory, Elements(world * bytes), DType::u8, site),
                   comm::Buffer(arrived, Elements(world * bytes), DType::u8, site));
  fold_blocks(arrived, bytes, world, op);
  copy_in(arrived, output);
}

at::Tensor sum_of_sparse(comm::ProcessGroup& group, const Scratch& scratch, const at::Tensor& mine,
                         comm::Site site) {
  const at::Tensor sorted = mine.coalesce();
  const at::Tensor indices = sorted._indices(), values = sorted._values();
  const auto outlines = gather_outlines(group, outline_of(sorted), site);
  std::int64_t most = 0;
  for (const Outline& o : outlines) most = std::max(most, o.entries);
  if (most == 0) return sorted;

  // Each rank's block has room for the largest number of entries: first the indices, one row for
  // each sparse dimension, then the values.
  const auto sparse = static_cast<std::size_t>(sorted.sparse_dim());
  std::vector<std::int64_t> shape = values.sizes().vec();
  std::size_t entry = values.element_size();
  for (std::size_t d = 1; d < shape.size(); ++d) entry *= static_cast<std::size_t>(shape[d]);
  const std::size_t index_bytes = sparse * static_cast<std::size_t>(most) * sizeof(std::int64_t);
  const std::size_t bytes =
      (index_bytes + static_cast<std::size_t>(most) * entry + kAlignment - 1) / kAlignment *
      kAlignment;
  std::byte* const all = gather(group, scratch, bytes, site, [&](std::byte* block) {
    copy_out(indices, block);
    copy_out(values, block + index_bytes);
  });

  at::Tensor sum;
  for (std::size_t r = 0; r < outlines.size(); ++r) {
    const std::int64_t entries = outlines[r].entries;
    shape[0] = entries;
    const at::Tensor at_rank = at::empty({sorted.sparse_dim(), entries}, indices.options());
    const at::Tensor values_of_rank = at::empty(shape, values.options());
    copy_in(all + r * bytes, at_rank);
    copy_in(all + r * bytes + index_bytes, values_of_rank);
    const at::Tensor term =
        at::_sparse_coo_tensor_unsafe(at_rank, values_of_rank, sorted.sizes(), sorted.options());
    sum = sum.defined() ? sum + term : term;
  }
  return sum.coalesce();
}

}  // namespace ringsmith::pytorch
