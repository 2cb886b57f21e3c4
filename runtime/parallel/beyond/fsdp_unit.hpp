// A unit of FSDP (fsdp.hpp): its flat parameter, this rank's shard of it, and the temporary memory
// of the parameters and their gradients.
//
//   parameters   [  weight  ][ bias ]          views of `flat`, at their storage offsets
//   flat         [..............................|0]       no memory, unless gathered
//   shard        this rank's W-th of it, from element `begin`; always has memory
//   gradients    like flat, from before_backward() to finish_reduce()
//
// Storage::release() frees the memory, and restore() allocates it again; the views of `flat` are
// unaffected.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/autograd/node.hpp"
#include "runtime/comm/process_group.hpp"
#include "runtime/nn/module.hpp"

namespace ringsmith {

struct FsdpUnit {
  Module* module = nullptr;
  int index = 0;                     // 0: the root unit
  std::vector<std::string> names;    // of the parameters
  std::vector<std::size_t> numbers;  // of the parameters, in the root's named_parameters()
  std::vector<Tensor> parameters;
  std::vector<HookHandle> hooks;  // on the parameters
  Tensor flat, shard;
  Tensor sent;                 // the shard in flat's dtype, while it is gathered
  std::int64_t begin = 0;      // of the shard, in flat
  std::uint32_t gathered = 0;  // version of the shard that flat has, or had when it was freed
  comm::WorkPtr gathering;     // in flight, or null
  bool stays = false;          // keeps its memory until its backward
  struct Backward {
    Tensor gradients;
    std::size_t waiting = 0;  // parameters whose gradient has not arrived
    Tensor average;           // this rank's part
    comm::WorkPtr reducing;   // in flight, or null
  } backward;

  [[nodiscard]] bool empty() const { return parameters.empty(); }  // possible for the root only
  [[nodiscard]] bool has_memory() const { return !empty() && !flat.storage()->is_released(); }
  [[nodiscard]] std::int64_t elements() const;  // without padding
  // The place of parameter p in a tensor like flat.
  [[nodiscard]] Tensor view_in(const Tensor& all, std::size_t p) const;

  // Copies the f32 parameters into a flat tensor, keeps the shard, frees the rest. If `dtype` is
  // not f32, replaces the parameters by new leaves of this dtype.
  void shard_over(const comm::ProcessGroup& group, DType dtype);

  // Collective, unless the parameters have memory. With `overlap`, start_...() returns before the
  // collective has ended, and the next function waits for it; the collectives are the same.
  void start_gather(comm::ProcessGroup& group, bool overlap);
  void wait_gathered();
  void free();

  // The next backward writes the gradients into a tensor like flat.
  void begin_backward();
  // Collective. Frees the parameters and averages the gradients; missing ones count as zeros.
  void start_reduce(comm::ProcessGroup& group, bool overlap);
  // Adds the average to the shard's .grad and frees the gradients.
  void finish_reduce();
  // After an error. Collectives in flight must end before their memory is freed.
  void abandon();
};

// Each of `world` ranks keeps this many of n elements.
[[nodiscard]] constexpr std::int64_t fsdp_shard_size(std::int64_t n, std::int64_t world) {
  return (n + world - 1) / world;
}

}  // namespace ringsmith
