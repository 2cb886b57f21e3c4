#include "runtime/comm/arguments.hpp"

#include <functional>

#include "runtime/base/error.hpp"

namespace ringsmith::comm {

// Messages are built only when they are needed: a check costs a comparison.
namespace {

std::string elements(const ConstBuffer& buffer) {
  return std::to_string(buffer.count().value) + " " + std::string(name_of(buffer.dtype()));
}

bool overlap(const ConstBuffer& a, const ConstBuffer& b) {
  const std::less<> before;
  return a.size().value > 0 && b.size().value > 0 && before(a.data(), b.data() + b.size().value) &&
         before(b.data(), a.data() + a.size().value);
}

// The smaller buffer may be exactly its place in the larger one; nothing else may overlap.
void check_overlap(const char* op, const ConstBuffer& input, const ConstBuffer& output,
                   const std::byte* in_place_at, const std::byte* in_place) {
  if (overlap(input, output) && in_place_at != in_place)
    throw UsageError(std::string(op) +
                     ": input and output overlap without being the same memory; use one "
                     "buffer (in place) or two separate ones");
}

void check_times(const char* op, const ConstBuffer& small, const char* small_name,
                 const ConstBuffer& large, const char* large_name, int world) {
  if (small.dtype() != large.dtype())
    throw UsageError(std::string(op) + ": input is " + std::string(name_of(small.dtype())) +
                     ", output is " + std::string(name_of(large.dtype())));
  if (large.count().value != small.count().value * static_cast<std::size_t>(world))
    throw UsageError(std::string(op) + ": " + large_name + " must hold world size (" +
                     std::to_string(world) + ") times " + small_name + "; they hold " +
                     elements(large) + " and " + elements(small));
}

void check_reduction(const char* op, DType dtype, ReduceOp reduction) {
  if (dtype == DType::boolean)
    throw UsageError(std::string(op) +
                     ": bool values cannot be reduced; use u8 with min (and) or max (or)");
  if (reduction == ReduceOp::avg && !is_floating(dtype))
    throw UsageError(std::string(op) + ": avg needs a floating type, got " +
                     std::string(name_of(dtype)) + "; use sum and divide");
}

void check_rank(const char* op, const char* what, int rank, int world) {
  if (rank < 0 || rank >= world)
    throw UsageError(std::string(op) + ": " + what + " " + std::to_string(rank) +
                     " is not a rank of this group of " + std::to_string(world));
}

void check_peer(const char* op, int peer, int rank, int world) {
  check_rank(op, "peer", peer, world);
  if (peer == rank)
    throw UsageError(std::string(op) + ": rank " + std::to_string(rank) + " names itself as peer");
}

const std::byte* part_of(const ConstBuffer& whole, const ConstBuffer& part, int rank) {
  return whole.data() + static_cast<std::size_t>(rank) * part.size().value;
}

}  // namespace

Transfer Arguments::all_reduce(ConstBuffer input, Buffer output, ReduceOp op,
                               Algorithm algorithm) const {
  check_times("all_reduce", input, "the input", output, "the output", 1);
  check_reduction("all_reduce", input.dtype(), op);
  check_overlap("all_reduce", input, output, input.data(), output.data());
  return {
      {Op::all_reduce, op, input.dtype(), algorithm, -1, input.count().value}, 0, input, output};
}

Transfer Arguments::reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op,
                                   Algorithm algorithm) const {
  check_times("reduce_scatter", output, "the output", input, "the input", world_);
  check_reduction("reduce_scatter", input.dtype(), op);
  check_overlap("reduce_scatter", input, output, part_of(input, output, rank_), output.data());
  const bool has_it = algorithm == Algorithm::ring || algorithm == Algorithm::direct;
  return {{Op::reduce_scatter, op, input.dtype(), has_it ? algorithm : Algorithm::automatic, -1,
           output.count().value},
          0,
          input,
          output};
}

Transfer Arguments::all_gather(ConstBuffer input, Buffer output) const {
  check_times("all_gather", input, "the input", output, "the output", world_);
  check_overlap("all_gather", input, output, part_of(output, input, rank_), input.data());
  return {{Op::all_gather, {}, input.dtype(), {}, -1, input.count().value}, 0, input, output};
}

Transfer Arguments::broadcast(Buffer data, int root) const {
  check_rank("broadcast", "root", root, world_);
  return {{Op::broadcast, {}, data.dtype(), {}, root, data.count().value}, 0, data, data};
}

Transfer Arguments::reduce(ConstBuffer input, Buffer output, ReduceOp op, int root,
                           Algorithm algorithm) const {
  check_rank("reduce", "root", root, world_);
  check_reduction("reduce", input.dtype(), op);
  if (rank_ == root) {
    check_times("reduce", input, "the input", output, "the output", 1);
    check_overlap("reduce", input, output, input.data(), output.data());
  }
  const bool has_it = algorithm == Algorithm::tree || algorithm == Algorithm::direct;
  return {{Op::reduce, op, input.dtype(), has_it ? algorithm : Algorithm::automatic, root,
           input.count().value},
          0,
          input,
          output};
}

Transfer Arguments::gather(ConstBuffer input, Buffer output, int root) const {
  check_rank("gather", "root", root, world_);
  if (rank_ == root) {
    check_times("gather", input, "the input", output, "the output", world_);
    check_overlap("gather", input, output, part_of(output, input, rank_), input.data());
  }
  return {{Op::gather, {}, input.dtype(), {}, root, input.count().value}, 0, input, output};
}

Transfer Arguments::scatter(ConstBuffer input, Buffer output, int root) const {
  check_rank("scatter", "root", root, world_);
  if (rank_ == root) {
    check_times("scatter", output, "the output", input, "the input", world_);
    check_overlap("scatter", input, output, part_of(input, output, rank_), output.data());
  }
  return {{Op::scatter, {}, output.dtype(), {}, root, output.count().value}, 0, input, output};
}

Transfer Arguments::all_to_all(ConstBuffer input, Buffer output) const {
  check_times("all_to_all", input, "the input", output, "the output", 1);
  if (!(input.count().value % static_cast<std::size_t>(world_) == 0))
    throw UsageError("all_to_all: " + elements(input) + " cannot be cut into equal parts for " +
                     std::to_string(world_) + " ranks");
  check_overlap("all_to_all", input, output, input.data(), output.data());
  return {{Op::all_to_all, {}, input.dtype(), {}, -1, input.count().value}, 0, input, output};
}

Transfer Arguments::send(ConstBuffer data, int peer) const {
  check_peer("send", peer, rank_, world_);
  return {{Op::send, {}, data.dtype(), {}, peer, data.count().value}, 0, data, {}};
}

Transfer Arguments::recv(Buffer data, int peer) const {
  check_peer("recv", peer, rank_, world_);
  return {{Op::recv, {}, data.dtype(), {}, peer, data.count().value}, 0, {}, data};
}

Transfer Arguments::barrier(Site site) const { return {{Op::barrier}, 0, {}, {}, site}; }

}  // namespace ringsmith::comm
