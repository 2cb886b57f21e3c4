#include "runtime/comm/types/options.hpp"

#include <array>
#include <span>

#include "runtime/base/error.hpp"

namespace ringsmith::comm {

namespace {

constexpr std::array<std::string_view, 5> kReduceOps{"sum", "avg", "prod", "min", "max"};
constexpr std::array<std::string_view, 4> kTransports{"auto", "shm", "tcp", "rdma"};
constexpr std::array<std::string_view, 3> kCudaEngines{"auto", "stream", "kernel"};

template <class Enum>
Enum parse(std::span<const std::string_view> names, std::string_view name, const char* what) {
  std::string choices;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
    choices += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + std::string(names[i]);
  }
  throw UsageError("unknown " + std::string(what) + " '" + std::string(name) + "': use " + choices);
}

}  // namespace

std::string_view name_of(ReduceOp op) { return kReduceOps.at(static_cast<std::size_t>(op)); }
std::string_view name_of(Transport t) { return kTransports.at(static_cast<std::size_t>(t)); }
std::string_view name_of(CudaEngine e) { return kCudaEngines.at(static_cast<std::size_t>(e)); }

ReduceOp parse_reduce_op(std::string_view name) {
  return parse<ReduceOp>(kReduceOps, name, "reduction");
}
Algorithm parse_algorithm(std::string_view name) {
  constexpr auto kOfGroups = static_cast<std::size_t>(kLastOfGroups) + 1;
  return parse<Algorithm>(std::span(kAlgorithmNames).first(kOfGroups), name, "algorithm");
}
Transport parse_transport(std::string_view name) {
  return parse<Transport>(kTransports, name, "transport");
}
CudaEngine parse_cuda_engine(std::string_view name) {
  if (name == "a") return CudaEngine::stream;
  if (name == "b") return CudaEngine::kernel;
  return parse<CudaEngine>(kCudaEngines, name, "engine");
}

}  // namespace ringsmith::comm
