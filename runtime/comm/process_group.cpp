#include "runtime/comm/process_group.hpp"

#include <functional>

#include "runtime/base/error.hpp"
#include "runtime/comm/bootstrap/bootstrap.hpp"
#include "runtime/comm/cpu_process_group.hpp"
#include "runtime/comm/device_process_group.hpp"

namespace ringsmith::comm {

// What is checked of the arguments of one call. Messages are built only when they are needed: a
// check costs a comparison.
class ProcessGroup::Check {
 public:
  Check(const ProcessGroup& group, Collective collective)
      : rank_(group.rank()), world_(group.size()), collective_(collective) {
    group.check_member(name_of(collective));
  }

  [[nodiscard]] Transfer all_reduce(ConstBuffer input, Buffer output, ReduceOp op) const {
    times(input, "the input", output, "the output", 1);
    reduction(input.dtype(), op);
    overlap(input, output, input.data(), output.data());
    return made(input, output, input, -1, op);
  }
  [[nodiscard]] Transfer reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op) const {
    times(output, "the output", input, "the input", world_);
    reduction(input.dtype(), op);
    overlap(input, output, part(input, output), output.data());
    return made(input, output, output, -1, op);
  }
  [[nodiscard]] Transfer all_gather(ConstBuffer input, Buffer output) const {
    times(input, "the input", output, "the output", world_);
    overlap(input, output, part(output, input), input.data());
    return made(input, output, input);
  }
  [[nodiscard]] Transfer broadcast(Buffer data, int root) const {
    rank("root", root);
    return made(data, data, data, root);
  }
  [[nodiscard]] Transfer reduce(ConstBuffer input, Buffer output, ReduceOp op, int root) const {
    rank("root", root);
    reduction(input.dtype(), op);
    if (rank_ == root) {
      times(input, "the input", output, "the output", 1);
      overlap(input, output, input.data(), output.data());
    }
    return made(input, output, input, root, op);
  }
  [[nodiscard]] Transfer gather(ConstBuffer input, Buffer output, int root) const {
    rank("root", root);
    if (rank_ == root) {
      times(input, "the input", output, "the output", world_);
      overlap(input, output, part(output, input), input.data());
    }
    return made(input, output, input, root);
  }
  [[nodiscard]] Transfer scatter(ConstBuffer input, Buffer output, int root) const {
    rank("root", root);
    if (rank_ == root) {
      times(output, "the output", input, "the input", world_);
      overlap(input, output, part(input, output), output.data());
    }
    return made(input, output, output, root);
  }
  [[nodiscard]] Transfer all_to_all(ConstBuffer input, Buffer output) const {
    times(input, "the input", output, "the output", 1);
    if (input.count().value % static_cast<std::size_t>(world_) != 0)
      fail(elements(input) + " cannot be cut into equal parts for " + std::to_string(world_) +
           " ranks");
    overlap(input, output, input.data(), output.data());
    return made(input, output, input);
  }
  // send and recv
  [[nodiscard]] Transfer message(ConstBuffer input, Buffer output, int peer) const {
    rank("peer", peer);
    if (peer == rank_) fail("rank " + std::to_string(rank_) + " names itself as peer");
    const ConstBuffer data = collective_ == Collective::send ? input : ConstBuffer(output);
    return made(input, output, data, peer);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UsageError(std::string(name_of(collective_)) + ": " + what);
  }
  // counted: the buffer that is equally long on all ranks.
  [[nodiscard]] Transfer made(ConstBuffer input, Buffer output, const ConstBuffer& counted,
                              int root = -1, ReduceOp op = {}) const {
    return {{collective_, op, counted.dtype(), {}, root, counted.count().value}, input, output};
  }
  static std::string elements(const ConstBuffer& buffer) {
    return std::to_string(buffer.count().value) + " " + std::string(name_of(buffer.dtype()));
  }
  [[nodiscard]] const std::byte* part(const ConstBuffer& whole, const ConstBuffer& part) const {
    return whole.data() + static_cast<std::size_t>(rank_) * part.size().value;
  }

  void rank(const char* what, int rank) const {
    if (rank < 0 || rank >= world_)
      fail(std::string(what) + " " + std::to_string(rank) + " is not a rank of this group of " +
           std::to_string(world_));
  }
  void reduction(DType dtype, ReduceOp op) const {
    if (dtype == DType::boolean)
      fail("bool values cannot be reduced; use u8 with min (and) or max (or)");
    if (op == ReduceOp::avg && !is_floating(dtype))
      fail("avg needs a floating type, got " + std::string(name_of(dtype)) +
           "; use sum and divide");
  }
  void times(const ConstBuffer& small, const char* small_name, const ConstBuffer& large,
             const char* large_name, int times) const {
    if (small.dtype() != large.dtype())
      fail("input is " + std::string(name_of(small.dtype())) + ", output is " +
           std::string(name_of(large.dtype())));
    if (large.count().value != small.count().value * static_cast<std::size_t>(times))
      fail(std::string(large_name) + " must hold world size (" + std::to_string(times) +
           ") times " + small_name + "; they hold " + elements(large) + " and " + elements(small));
  }
  // The smaller buffer may be exactly its place in the larger one; nothing else may overlap.
  void overlap(const ConstBuffer& a, const ConstBuffer& b, const std::byte* in_place_at,
               const std::byte* in_place) const {
    const std::less<> before;
    const bool apart = a.size().value == 0 || b.size().value == 0 ||
                       !before(a.data(), b.data() + b.size().value) ||
                       !before(b.data(), a.data() + a.size().value);
    if (!apart && in_place_at != in_place)
      fail(
          "input and output overlap without being the same memory; use one buffer (in place) or "
          "two separate ones");
  }

  int rank_, world_;
  Collective collective_;
};

void ProcessGroup::all_reduce(ConstBuffer input, Buffer output, ReduceOp op) {
  run(Check(*this, Collective::all_reduce).all_reduce(input, output, op));
}
WorkPtr ProcessGroup::all_reduce_async(ConstBuffer input, Buffer output, ReduceOp op) {
  return submit(Check(*this, Collective::all_reduce).all_reduce(input, output, op));
}

void ProcessGroup::reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op) {
  run(Check(*this, Collective::reduce_scatter).reduce_scatter(input, output, op));
}
WorkPtr ProcessGroup::reduce_scatter_async(ConstBuffer input, Buffer output, ReduceOp op) {
  return submit(Check(*this, Collective::reduce_scatter).reduce_scatter(input, output, op));
}

void ProcessGroup::all_gather(ConstBuffer input, Buffer output) {
  run(Check(*this, Collective::all_gather).all_gather(input, output));
}
WorkPtr ProcessGroup::all_gather_async(ConstBuffer input, Buffer output) {
  return submit(Check(*this, Collective::all_gather).all_gather(input, output));
}

void ProcessGroup::broadcast(Buffer data, int root) {
  run(Check(*this, Collective::broadcast).broadcast(data, root));
}
WorkPtr ProcessGroup::broadcast_async(Buffer data, int root) {
  return submit(Check(*this, Collective::broadcast).broadcast(data, root));
}

void ProcessGroup::reduce(ConstBuffer input, Buffer output, ReduceOp op, int root) {
  run(Check(*this, Collective::reduce).reduce(input, output, op, root));
}
WorkPtr ProcessGroup::reduce_async(ConstBuffer input, Buffer output, ReduceOp op, int root) {
  return submit(Check(*this, Collective::reduce).reduce(input, output, op, root));
}

void ProcessGroup::gather(ConstBuffer input, Buffer output, int root) {
  run(Check(*this, Collective::gather).gather(input, output, root));
}
WorkPtr ProcessGroup::gather_async(ConstBuffer input, Buffer output, int root) {
  return submit(Check(*this, Collective::gather).gather(input, output, root));
}

void ProcessGroup::scatter(ConstBuffer input, Buffer output, int root) {
  run(Check(*this, Collective::scatter).scatter(input, output, root));
}
WorkPtr ProcessGroup::scatter_async(ConstBuffer input, Buffer output, int root) {
  return submit(Check(*this, Collective::scatter).scatter(input, output, root));
}

void ProcessGroup::all_to_all(ConstBuffer input, Buffer output) {
  run(Check(*this, Collective::all_to_all).all_to_all(input, output));
}
WorkPtr ProcessGroup::all_to_all_async(ConstBuffer input, Buffer output) {
  return submit(Check(*this, Collective::all_to_all).all_to_all(input, output));
}

void ProcessGroup::send(ConstBuffer data, int peer) {
  run(Check(*this, Collective::send).message(data, {}, peer));
}
WorkPtr ProcessGroup::send_async(ConstBuffer data, int peer) {
  return submit(Check(*this, Collective::send).message(data, {}, peer));
}

void ProcessGroup::recv(Buffer data, int peer) {
  run(Check(*this, Collective::recv).message({}, data, peer));
}
WorkPtr ProcessGroup::recv_async(Buffer data, int peer) {
  return submit(Check(*this, Collective::recv).message({}, data, peer));
}

void ProcessGroup::barrier(Site site) {
  check_member("barrier");
  run({{Collective::barrier}, {}, {}, site});
}
WorkPtr ProcessGroup::barrier_async(Site site) {
  check_member("barrier");
  return submit({{Collective::barrier}, {}, {}, site});
}

std::shared_ptr<CommMemory> ProcessGroup::allocate_on(Device where, Bytes size) {
  if (where.is_cpu()) return allocate(size);
  throw UsageError("communication memory on " + where.str() + ": this group is on " +
                   device().str() + "; make it with GroupOptions::device");
}

std::shared_ptr<ProcessGroup> ProcessGroup::new_group(const std::vector<int>&) {
  throw UsageError("new_group: this kind of group cannot be divided");
}

std::shared_ptr<ProcessGroup> ProcessGroup::split(int) {
  throw UsageError("split: this kind of group cannot be divided");
}

void ProcessGroup::set_algorithms(const std::vector<std::pair<Bytes, Algorithm>>&) {
  throw UsageError("set_algorithms: this kind of group has one algorithm for all sizes");
}

void ProcessGroup::abort(Site) { throw UsageError("this group cannot be aborted"); }

std::shared_ptr<ProcessGroup> init_process_group(std::shared_ptr<Bootstrap> bootstrap,
                                                 const GroupOptions& options) {
  if (options.device.is_cpu())
    return std::make_shared<CpuProcessGroup>(std::move(bootstrap), options);
  return std::make_shared<DeviceProcessGroup>(std::move(bootstrap), options);
}

std::shared_ptr<ProcessGroup> init_process_group(const GroupOptions& options) {
  return init_process_group(make_bootstrap(options.bootstrap, options.timeout), options);
}

}  // namespace ringsmith::comm
