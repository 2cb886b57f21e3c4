// Checks the arguments of every operation before anything is shared with others: a UsageError that
// names the argument and the remedy, on the rank that made the mistake. What passes is a Transfer.
// An algorithm that the collective does not have counts as automatic.
#pragma once

#include "runtime/comm/executor/transfer.hpp"

namespace ringsmith::comm {

class Arguments {
 public:
  Arguments(int rank, int world) : rank_(rank), world_(world) {}

  [[nodiscard]] Transfer all_reduce(ConstBuffer input, Buffer output, ReduceOp op,
                                    Algorithm algorithm) const;
  [[nodiscard]] Transfer reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op,
                                        Algorithm algorithm) const;
  [[nodiscard]] Transfer all_gather(ConstBuffer input, Buffer output) const;
  [[nodiscard]] Transfer broadcast(Buffer data, int root) const;
  [[nodiscard]] Transfer reduce(ConstBuffer input, Buffer output, ReduceOp op, int root,
                                Algorithm algorithm) const;
  [[nodiscard]] Transfer gather(ConstBuffer input, Buffer output, int root) const;
  [[nodiscard]] Transfer scatter(ConstBuffer input, Buffer output, int root) const;
  [[nodiscard]] Transfer all_to_all(ConstBuffer input, Buffer output) const;
  [[nodiscard]] Transfer send(ConstBuffer data, int peer) const;
  [[nodiscard]] Transfer recv(Buffer data, int peer) const;
  [[nodiscard]] Transfer barrier(Site site) const;

 private:
  int rank_, world_;
};

}  // namespace ringsmith::comm
