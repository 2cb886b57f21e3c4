// Have the replicas drifted apart? Data-parallel training is right as long as all ranks hold the
// same parameters, bit for bit. A rank that skips a step, draws its own initial values after
// wrapping, or updates with other hyperparameters breaks that silently: losses go on falling.
//
//   each rank   a 64-bit digest of all its parameters           one pass over them
//   all ranks   all_gather of the digests, 8 bytes a rank       equal: done
//               digests of every parameter                      only if not: to say which
#pragma once

#include "runtime/comm/process_group.hpp"
#include "runtime/nn/module.hpp"

namespace ringsmith {

class DriftError : public Error {
 public:
  using Error::Error;
};

// Collective. DriftError on every rank, with the same message, unless all ranks hold the same bits:
// "the replicas have drifted apart: 'fc.weight' is one on ranks 0, 2 and another on rank 1 (the
// first of 3 that differ); ...". The same names, in the same order, on every rank. For tensors that
// are replicas when it is called: parameters, under ZeRO too, but neither its optimizer's state nor
// DdpOptions::ignored; with post-local SGD only after an averaging step.
void check_drift(comm::ProcessGroup& group, const NamedTensors& tensors);

// Error unless every number is finite: "'fc.weight' holds NaN or an infinity: ...". Not collective:
// after check_drift() all ranks throw, or none. Call it before a checkpoint replaces a good one.
void check_finite(const NamedTensors& tensors);

}  // namespace ringsmith
