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

#include "runtime/comm/executor/transfer.hpp"
#include "runtime/comm/transport/roll_call.hpp"

namespace ringsmith::comm {

void run_in_window(Host& host, RollCall& roll_call, const Transfer& transfer);

}  // namespace ringsmith::comm
