#include "runtime/comm/group.hpp"

#include <functional>

#include "runtime/base/error.hpp"
#include "runtime/base/tracer.hpp"

namespace ringsmith::comm {

namespace {

class DoneWork : public Work {
 public:
  [[nodiscard]] bool is_completed() const override { return true; }
  void wait() override {}
};

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
  require(!overlap(input, output) || in_place_at == in_place,
          std::string(op) +
              ": input and output overlap without being the same memory; use one "
              "buffer (in place) or two separate ones");
}

void check_times(const char* op, const ConstBuffer& small, const char* small_name,
                 const ConstBuffer& large, const char* large_name, int world) {
  require(small.dtype() == large.dtype(), std::string(op) + ": input is " +
                                              std::string(name_of(small.dtype())) + ", output is " +
                                              std::string(name_of(large.dtype())));
  require(large.count().value == small.count().value * static_cast<std::size_t>(world),
          std::string(op) + ": " + large_name + " must hold world size (" + std::to_string(world) +
              ") times " + small_name + "; they hold " + elements(large) + " and " +
              elements(small));
}

void check_reduction(const char* op, DType dtype, ReduceOp reduction) {
  require(dtype != DType::boolean,
          std::string(op) + ": bool values cannot be reduced; use u8 with min (and) or max (or)");
  require(reduction != ReduceOp::avg || is_floating(dtype),
          std::string(op) + ": avg needs a floating type, got " + std::string(name_of(dtype)) +
              "; use sum and divide");
}

void check_rank(const char* op, const char* what, int rank, int world) {
  require(rank >= 0 && rank < world, std::string(op) + ": " + what + " " + std::to_string(rank) +
                                         " is not a rank of this group of " +
                                         std::to_string(world));
}

const std::byte* part_of(const ConstBuffer& whole, const ConstBuffer& part, int rank) {
  return whole.data() + static_cast<std::size_t>(rank) * part.size().value;
}

}  // namespace

HostGroup::HostGroup(std::shared_ptr<Bootstrap> bootstrap, GroupOptions options)
    : host_(std::move(bootstrap), options), roll_call_(host_), options_(options) {}

WorkPtr HostGroup::submit(Transfer transfer) {
  host_.check_usable();
  transfer.sequence = sequence_++;
  const trace::Span span(
      transfer.call.name(), trace::Category::comm,
      {"bytes", static_cast<std::int64_t>(transfer.call.count * size_of(transfer.call.dtype))});
  host_.enter(transfer.call, transfer.sequence);
  run_in_window(host_, roll_call_, transfer);
  host_.leave();
  return std::make_shared<DoneWork>();
}

WorkPtr HostGroup::all_reduce_async(ConstBuffer input, Buffer output, ReduceOp op) {
  check_times("all_reduce", input, "the input", output, "the output", 1);
  check_reduction("all_reduce", input.dtype(), op);
  check_overlap("all_reduce", input, output, input.data(), output.data());
  return submit({{Op::all_reduce, op, input.dtype(), options_.algorithm, -1, input.count().value},
                 0,
                 input,
                 output});
}

WorkPtr HostGroup::reduce_scatter_async(ConstBuffer input, Buffer output, ReduceOp op) {
  check_times("reduce_scatter", output, "the output", input, "the input", size());
  check_reduction("reduce_scatter", input.dtype(), op);
  check_overlap("reduce_scatter", input, output, part_of(input, output, rank()), output.data());
  return submit(
      {{Op::reduce_scatter, op, input.dtype(), {}, -1, output.count().value}, 0, input, output});
}

WorkPtr HostGroup::all_gather_async(ConstBuffer input, Buffer output) {
  check_times("all_gather", input, "the input", output, "the output", size());
  check_overlap("all_gather", input, output, part_of(output, input, rank()), input.data());
  return submit(
      {{Op::all_gather, {}, input.dtype(), {}, -1, input.count().value}, 0, input, output});
}

WorkPtr HostGroup::broadcast_async(Buffer data, int root) {
  check_rank("broadcast", "root", root, size());
  return submit({{Op::broadcast, {}, data.dtype(), {}, root, data.count().value}, 0, data, data});
}

WorkPtr HostGroup::reduce_async(ConstBuffer input, Buffer output, ReduceOp op, int root) {
  check_rank("reduce", "root", root, size());
  check_reduction("reduce", input.dtype(), op);
  if (rank() == root) {
    check_times("reduce", input, "the input", output, "the output", 1);
    check_overlap("reduce", input, output, input.data(), output.data());
  }
  return submit({{Op::reduce, op, input.dtype(), {}, root, input.count().value}, 0, input, output});
}

WorkPtr HostGroup::gather_async(ConstBuffer input, Buffer output, int root) {
  check_rank("gather", "root", root, size());
  if (rank() == root) {
    check_times("gather", input, "the input", output, "the output", size());
    check_overlap("gather", input, output, part_of(output, input, rank()), input.data());
  }
  return submit({{Op::gather, {}, input.dtype(), {}, root, input.count().value}, 0, input, output});
}

WorkPtr HostGroup::scatter_async(ConstBuffer input, Buffer output, int root) {
  check_rank("scatter", "root", root, size());
  if (rank() == root) {
    check_times("scatter", output, "the output", input, "the input", size());
    check_overlap("scatter", input, output, part_of(input, output, rank()), output.data());
  }
  return submit(
      {{Op::scatter, {}, output.dtype(), {}, root, output.count().value}, 0, input, output});
}

WorkPtr HostGroup::all_to_all_async(ConstBuffer input, Buffer output) {
  check_times("all_to_all", input, "the input", output, "the output", 1);
  require(input.count().value % static_cast<std::size_t>(size()) == 0,
          "all_to_all: " + elements(input) + " cannot be cut into equal parts for " +
              std::to_string(size()) + " ranks");
  check_overlap("all_to_all", input, output, input.data(), output.data());
  return submit(
      {{Op::all_to_all, {}, input.dtype(), {}, -1, input.count().value}, 0, input, output});
}

WorkPtr HostGroup::send_async(ConstBuffer /*data*/, int peer) {
  check_rank("send", "peer", peer, size());
  throw CommError("send is not in this version yet");
}

WorkPtr HostGroup::recv_async(Buffer /*data*/, int peer) {
  check_rank("recv", "peer", peer, size());
  throw CommError("recv is not in this version yet");
}

WorkPtr HostGroup::barrier_async() { return submit({{Op::barrier}, 0, {}, {}}); }

}  // namespace ringsmith::comm
