#include "runtime/comm/process_group.hpp"

#include <array>

#include "runtime/base/error.hpp"
#include "runtime/comm/bootstrap/bootstrap.hpp"
#include "runtime/comm/device_group.hpp"
#include "runtime/comm/staged_group.hpp"
#include "runtime/comm/transport/shm/mesh.hpp"

namespace ringsmith::comm {

namespace {

constexpr std::array<std::string_view, 5> kReduceOps{"sum", "avg", "prod", "min", "max"};
constexpr std::array<std::string_view, 8> kAlgorithms{
    "automatic",        "ring",        "gloo_ring",   "direct", "tree",
    "halving_doubling", "double_tree", "hierarchical"};
constexpr std::array<std::string_view, 4> kTransports{"auto", "shm", "tcp", "rdma"};
constexpr std::array<std::string_view, 3> kCudaEngines{"auto", "a", "b"};

template <class Enum, std::size_t n>
Enum parse(const std::array<std::string_view, n>& names, std::string_view name, const char* what) {
  std::string choices;
  for (std::size_t i = 0; i < n; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
    choices += (i == 0 ? "" : i + 1 == n ? " or " : ", ") + std::string(names[i]);
  }
  throw UsageError("unknown " + std::string(what) + " '" + std::string(name) + "': use " + choices);
}

}  // namespace

std::string_view name_of(ReduceOp op) { return kReduceOps.at(static_cast<std::size_t>(op)); }
std::string_view name_of(Algorithm a) { return kAlgorithms.at(static_cast<std::size_t>(a)); }
std::string_view name_of(Transport t) { return kTransports.at(static_cast<std::size_t>(t)); }

std::string_view name_of(CudaEngine e) { return kCudaEngines.at(static_cast<std::size_t>(e)); }

ReduceOp parse_reduce_op(std::string_view name) {
  return parse<ReduceOp>(kReduceOps, name, "reduction");
}
Algorithm parse_algorithm(std::string_view name) {
  return parse<Algorithm>(kAlgorithms, name, "algorithm");
}
Transport parse_transport(std::string_view name) {
  return parse<Transport>(kTransports, name, "transport");
}
CudaEngine parse_cuda_engine(std::string_view name) {
  return parse<CudaEngine>(kCudaEngines, name, "engine");
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

std::vector<std::string> ProcessGroup::describe_transport() const { return {}; }

void ProcessGroup::keep_flight_in(const std::string&) {}

void ProcessGroup::abort(Site) { throw UsageError("this group cannot be aborted"); }

std::shared_ptr<ProcessGroup> init_process_group(std::shared_ptr<Bootstrap> bootstrap,
                                                 const GroupOptions& options) {
  if (options.device.is_cpu()) return std::make_shared<HostGroup>(std::move(bootstrap), options);
  const bool one_host = on_one_host(*bootstrap);  // asked in any case: it is collective
  const bool wires = options.transport == Transport::tcp || options.transport == Transport::rdma;
  if (one_host && !wires) return std::make_shared<DeviceGroup>(bootstrap, options);
  return std::make_shared<StagedGroup>(std::move(bootstrap), options);
}

std::shared_ptr<ProcessGroup> init_process_group(const GroupOptions& options) {
  return init_process_group(make_bootstrap(options.bootstrap, options.timeout), options);
}

}  // namespace ringsmith::comm
