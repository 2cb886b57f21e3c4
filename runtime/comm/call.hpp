// The fingerprint of an operation: what ranks must agree on. It travels as two words, is compared
// before data moves, and can be printed as the call that the user wrote.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/dtype.hpp"
#include "runtime/comm/process_group.hpp"

namespace ringsmith::comm {

enum class Op : std::uint8_t {
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
  send,
  recv
};

struct Call {
  Op op = Op::none;
  ReduceOp reduction = ReduceOp::sum;
  DType dtype = DType::u8;
  Algorithm algorithm = Algorithm::automatic;
  int root = -1;            // or the peer, of send and recv
  std::uint64_t count = 0;  // elements, of the buffer that is equally long on all ranks
  bool on_device = false;   // the buffers are in the memory of a GPU

  bool operator==(const Call&) const = default;
  // Everything but the count.
  [[nodiscard]] std::uint64_t pack() const;
  static Call unpack(std::uint64_t packed, std::uint64_t count);
  [[nodiscard]] const char* name() const;  // "all_reduce"
  [[nodiscard]] std::uint64_t bytes() const { return count * size_of(dtype); }
  // "all_reduce(sum, f32, 1024)", "broadcast(f32, 10, root 2, device memory)", "barrier()".
  [[nodiscard]] std::string describe() const;
};

}  // namespace ringsmith::comm
