// Small messages: every rank copies its contribution into its staging memory, all meet in one
// agreement barrier, and everybody takes what it needs from the staging memory of the others. One
// hand-off per collective.
//
//     rank 0   [stage]--answer--await_all--[take from 0, 1, 2] --> next call
//     rank 1   [stage]--answer--await_all--[take from 0, 1, 2]
//     rank 2      [stage]--answer--await_all--...
//
// Messages longer than the staging memory go in blocks, one agreement barrier each. Sums are in rank
// order: ((x0 + x1) + x2) + ..., on every rank.
#pragma once

#include "runtime/comm/transport/agreement_barrier.hpp"
#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm {

// The whole collective, with its agreement barriers.
void run_staged(Peers& peers, AgreementBarrier& agreement, const Transfer& transfer);

// The two halves of a collective that fits into one block, for a caller that holds the agreement
// barrier between them itself. `round` is the number of that agreement barrier.
void stage(Peers& peers, std::uint64_t round, const Transfer& transfer);
void take_staged(Peers& peers, std::uint64_t round, const Transfer& transfer);

}  // namespace ringsmith::comm
