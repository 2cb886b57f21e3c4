// The operations between ranks, their reductions and their algorithms, with their names in command
// lines and error messages.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace ringsmith::comm {

enum class Collective : std::uint8_t {
  none,
  barrier,
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  send,  // send and recv: between two ranks, without a schedule
  recv
};

// The content of a call's buffer. The whole data consists of one part for each rank.
enum class Extent : std::uint8_t {
  none,    // there is no such buffer
  all,     // all parts, on every rank
  own,     // part r, on rank r
  at_root  // all parts, on root; nothing on other ranks
};

// The inputs and outputs of a collective. They determine the accepted arguments
// (process_group.cpp), the positions of chunks (executor) and the postconditions of schedules
// (runtime/analysis/checker.hpp).
struct Contract {
  const char* name;
  Extent input, output;
  bool reduces = false;    // the output is the reduction of all inputs
  bool exchanges = false;  // output part p of rank r is input part r of rank p

  [[nodiscard]] constexpr bool rooted() const {
    return input == Extent::at_root || output == Extent::at_root;
  }
  // True if one buffer holds all parts and the other holds one.
  [[nodiscard]] constexpr bool divides() const {
    return input == Extent::own || output == Extent::own;
  }
};

inline constexpr Contract kContracts[] = {{"no call", Extent::none, Extent::none},
                                          {"barrier", Extent::none, Extent::none},
                                          {"all_reduce", Extent::all, Extent::all, true},
                                          {"reduce_scatter", Extent::all, Extent::own, true},
                                          {"all_gather", Extent::own, Extent::all},
                                          {"broadcast", Extent::at_root, Extent::all},
                                          {"reduce", Extent::all, Extent::at_root, true},
                                          {"gather", Extent::own, Extent::at_root},
                                          {"scatter", Extent::at_root, Extent::own},
                                          {"all_to_all", Extent::all, Extent::all, false, true},
                                          {"send", Extent::all, Extent::none},
                                          {"recv", Extent::none, Extent::all}};
static_assert(std::size(kContracts) == static_cast<std::size_t>(Collective::recv) + 1);

[[nodiscard]] constexpr Contract contract_of(Collective collective) {
  const auto index = static_cast<std::size_t>(collective);
  return index < std::size(kContracts) ? kContracts[index]
                                       : Contract{"corrupt call", Extent::none, Extent::none};
}
[[nodiscard]] constexpr const char* name_of(Collective c) { return contract_of(c).name; }
// has(): the rank has a buffer of this extent. holds(): that buffer contains this part.
[[nodiscard]] constexpr bool has(Extent extent, int rank, int root) {
  return extent == Extent::at_root ? rank == root : extent != Extent::none;
}
[[nodiscard]] constexpr bool holds(Extent extent, int rank, int root, int part) {
  return has(extent, rank, root) && (extent != Extent::own || part == rank);
}
// The ranks whose inputs make up this part of a rank's output: [first, last).
struct Origins {
  int first, last;
};
[[nodiscard]] constexpr Origins origins_of(const Contract& contract, int world, int root,
                                           int part) {
  if (contract.reduces) return {0, world};
  const int one = contract.input == Extent::at_root ? root : part;
  return {one, one + 1};
}

// avg sums the contributions, each multiplied by fl(1/world), as PyTorch DDP does; floating types
// only.
enum class ReduceOp : std::uint8_t { sum, avg, prod, min, max };
[[nodiscard]] std::string_view name_of(ReduceOp op);
ReduceOp parse_reduce_op(std::string_view name);  // throws UsageError naming the choices

// The algorithm determines the order of each sum. automatic chooses by collective, size, world and
// the buffers' memory, so that every run computes the same bits (schedule/select.hpp).
enum class Algorithm : std::uint8_t {
  automatic,
  ring,
  plain_ring,  // the same sums in a readable loop (executor/plain_ring.cpp); slower
  gloo_ring,
  direct,
  tree,
  halving_doubling,
  double_tree,
  hierarchical,  // exchanges data within nodes, then between nodes
  // Only for schedules; not accepted as a group's option:
  one_shot,  // every rank reads the data of all ranks and sums it in rank order
  own        // a user's schedule (schedule/own.hpp)
};
constexpr Algorithm kLastOfGroups = Algorithm::hierarchical;
inline constexpr auto kAlgorithmNames = std::to_array<std::string_view>(
    {"automatic", "ring", "plain_ring", "gloo_ring", "direct", "tree", "halving_doubling",
     "double_tree", "hierarchical", "one_shot", "own"});
static_assert(kAlgorithmNames.size() == static_cast<std::size_t>(Algorithm::own) + 1);
[[nodiscard]] constexpr std::string_view name_of(Algorithm algorithm) {
  return kAlgorithmNames.at(static_cast<std::size_t>(algorithm));
}
// Accepts only the options of a group. Throws UsageError naming the choices.
Algorithm parse_algorithm(std::string_view name);

}  // namespace ringsmith::comm
