// Small messages: every rank puts its contribution into its window, all meet in one roll call, and
// everybody takes what it needs from the windows of the others. One hand-off per collective.
//
//     rank 0   [stage]--answer--await_all--[take from windows 0, 1, 2] --> next call
//     rank 1   [stage]--answer--await_all--[take from windows 0, 1, 2]
//     rank 2      [stage]--answer--await_all--...
//
// Messages longer than the window go in blocks, one roll call each. Sums are in rank order:
// ((x0 + x1) + x2) + ..., on every rank.
#pragma once

#include "runtime/comm/types/transfer.hpp"
#include "runtime/comm/transport/roll_call.hpp"

namespace ringsmith::comm {

// The whole collective, with its roll calls.
void run_in_window(Host& host, RollCall& roll_call, const Transfer& transfer);

// The two halves of a collective that fits into one block, for a caller that holds the roll call
// between them itself. `round` is the number of that roll call.
void stage_in_window(Host& host, std::uint64_t round, const Transfer& transfer);
void take_from_window(Host& host, std::uint64_t round, const Transfer& transfer);

}  // namespace ringsmith::comm
