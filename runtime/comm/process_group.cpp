#include "runtime/comm/process_group.hpp"

#include <functional>

#include "runtime/base/error.hpp"
#include "runtime/comm/cpu_process_group.hpp"
#include "runtime/comm/device_process_group.hpp"

namespace ringsmith::comm {

namespace {

[[noreturn]] void fail(Collective collective, const std::string& what) {
  throw UsageError(std::string(name_of(collective)) + ": " + what);
}

std::string elements(const ConstBuffer& buffer) {
  return std::to_string(buffer.count().value) + " " + std::string(name_of(buffer.dtype()));
}

void check_rank(Collective collective, const char* what, int rank, int world) {
  if (rank < 0 || rank >= world)
    fail(collective, std::string(what) + " " + std::to_string(rank) +
                         " is not a rank of this group of " + std::to_string(world));
}

void check_reduction(Collective collective, DType dtype, ReduceOp op) {
  if (dtype == DType::boolean)
    fail(collective, "bool values cannot be reduced; use u8 with min (and) or max (or)");
  if (op == ReduceOp::avg && !is_floating(dtype))
    fail(collective,
         "avg needs a floating type, got " + std::string(name_of(dtype)) + "; use sum and divide");
}

// Checks that the types match, that the larger buffer holds `times` as many elements as the
// smaller, and that they overlap only if the smaller is this rank's part of the larger.
void check_pair(Collective collective, const ConstBuffer& input, const ConstBuffer& output,
                bool input_larger, int times, int rank) {
  if (input.dtype() != output.dtype())
    fail(collective, "input is " + std::string(name_of(input.dtype())) + ", output is " +
                         std::string(name_of(output.dtype())) + "; use one dtype for both");
  const ConstBuffer &small = input_larger ? output : input, &large = input_larger ? input : output;
  if (large.count().value != small.count().value * static_cast<std::size_t>(times))
    fail(collective, std::string(input_larger ? "the input" : "the output") +
                         " must hold world size (" + std::to_string(times) + ") times " +
                         (input_larger ? "the output" : "the input") + "; they hold " +
                         elements(large) + " and " + elements(small));
  const std::size_t before_it =
      times == 1 ? 0 : static_cast<std::size_t>(rank) * small.size().value;
  const std::less<> before;
  const bool apart = small.size().value == 0 ||
                     !before(input.data(), output.data() + output.size().value) ||
                     !before(output.data(), input.data() + input.size().value);
  if (!apart && large.data() + before_it != small.data())
    fail(collective,
         "input and output overlap without being the same memory; use one buffer (in place) or "
         "two separate ones");
}

}  // namespace

Transfer ProcessGroup::checked(Collective collective, ConstBuffer input, Buffer output, int root,
                               ReduceOp op) const {
  const Contract contract = contract_of(collective);
  const int me = rank(), world = size();
  check_member(contract.name);
  if (contract.rooted()) check_rank(collective, "root", root, world);
  // The buffer that has the same length on all ranks.
  const bool by_output = contract.output == Extent::own || contract.input == Extent::none;
  const ConstBuffer counted = by_output ? ConstBuffer(output) : input;
  if (has(contract.input, me, root) && has(contract.output, me, root))
    check_pair(collective, input, output, by_output, contract.divides() ? world : 1, me);
  if (contract.reduces) check_reduction(collective, input.dtype(), op);
  if (contract.exchanges && input.count().value % static_cast<std::size_t>(world) != 0)
    fail(collective, elements(input) + " cannot be divided into equal parts for " +
                         std::to_string(world) + " ranks");
  return {{collective, op, counted.dtype(), {}, root, counted.count().value}, input, output};
}

Transfer ProcessGroup::checked_message(Collective collective, ConstBuffer input, Buffer output,
                                       int peer) const {
  check_member(name_of(collective));
  check_rank(collective, "peer", peer, size());
  if (peer == rank()) fail(collective, "rank " + std::to_string(peer) + " names itself as peer");
  return checked(collective, input, output, peer);
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
                                                 const GroupOptions& asked) {
  GroupOptions options = asked;
  options.timeout = checked_timeout("GroupOptions::timeout", asked.timeout);
  if (options.device.is_cpu())
    return std::make_shared<CpuProcessGroup>(std::move(bootstrap), options);
  return make_device_group(bootstrap, options);
}

}  // namespace ringsmith::comm
