// What ranks can do together, how they add up, and by which algorithm: the words of the whole
// floor, of command lines, and of error messages.
#pragma once

#include <cstdint>
#include <string_view>

namespace ringsmith::comm {

// What each promises is compared with its schedule by the checker (analysis/checker.hpp). Sums are
// over all ranks; chunk r is rank r's part of the buffer.
enum class Collective : std::uint8_t {
  none,
  barrier,         // nothing moves
  all_reduce,      // every chunk ends as the sum, on all ranks
  reduce_scatter,  // chunk r ends as the sum, on rank r; other chunks end undefined
  all_gather,      // chunk r starts valid on rank r only, ends as that value on all ranks
  broadcast,       // every chunk of root, on all ranks
  reduce,          // every chunk ends as the sum, on root; elsewhere undefined
  gather,          // chunk r starts valid on rank r, ends on root
  scatter,         // chunk r starts valid on root, ends on rank r
  all_to_all,      // separate input and output: output chunk p of rank r = input chunk r of rank p
  send,            // between two ranks: no schedule
  recv
};
[[nodiscard]] const char* name_of(
    Collective collective);  // "no call", "barrier", "all_reduce", ...

// avg multiplies each contribution by fl(1/world) and then sums, as PyTorch DDP does (floating
// types only).
enum class ReduceOp : std::uint8_t { sum, avg, prod, min, max };
[[nodiscard]] std::string_view name_of(ReduceOp op);
ReduceOp parse_reduce_op(std::string_view name);  // UsageError naming the choices

// Orders of the sums; automatic picks by size and by whose memory it is, from fixed thresholds, so
// that the choice (and with it the bits) is the same in every run (executor/engine.hpp).
enum class Algorithm : std::uint8_t {
  automatic,
  ring,
  plain_ring,  // the same sums by a loop that one can read (executor/plain_ring.hpp); slower
  gloo_ring,
  direct,
  tree,
  halving_doubling,
  double_tree,
  hierarchical  // within nodes, then between them
};
[[nodiscard]] std::string_view name_of(Algorithm algorithm);
Algorithm parse_algorithm(std::string_view name);

}  // namespace ringsmith::comm
