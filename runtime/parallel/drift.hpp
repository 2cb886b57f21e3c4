// Detects replicas that have drifted apart. Data-parallel training is correct only while all ranks
// hold the same parameters, bit for bit. If a rank skips a step, draws new initial values after the
// model was wrapped, or updates with other hyperparameters, its replica drifts away while the
// losses keep falling.
//
//   each rank   computes a 64-bit digest of all its parameters  one pass over them
//   all ranks   all_gather the digests, 8 bytes per rank        equal: done
//               all_gather a digest per parameter               otherwise: finds those that differ
#pragma once

#include "runtime/comm/process_group.hpp"
#include "runtime/nn/module.hpp"

namespace ringsmith {

class DriftError : public Error {
 public:
  using Error::Error;
};

// Collective. Throws DriftError on every rank, with the same message, unless all ranks hold the
// same bits: "the replicas have drifted apart: 'fc.weight' has one value on ranks 0, 2 and another
// on rank 1 (the first of 3 that differ); ...". Names and order must be the same on every rank.
// Pass only tensors that must be equal at this moment: the parameters, even with ZeRO, but neither
// ZeRO's optimizer state nor DdpOptions::ignored. With post-local SGD, call it only after an
// averaging step.
void check_drift(comm::ProcessGroup& group, const NamedTensors& tensors);

// Throws Error unless every value is finite: "'fc.weight' holds NaN or an infinity: ...". Not
// collective, but after check_drift() it throws on all ranks or on none.
void check_finite(const NamedTensors& tensors);

}  // namespace ringsmith
