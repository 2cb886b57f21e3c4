// The ring all-reduce as one reads it: a loop over five verbs, each a message to the next rank, a
// message from the one before, or both.
//
//        .--> 0 ---> 1 --.      behind(j): the chunk of the rank that stands j places behind
//        '--- 3 <--- 2 <-'
//
// All-reduce among four, as rank 0 lives through it; every other rank does the same, one chunk
// further on. x2 is what rank 2 contributes to this chunk.
//
//     step  verb                            chunk  goes on to rank 1
//     0     send                behind(1)   3      x0
//     1     recvReduceSend      behind(2)   2      x3 + x0
//     2     recvReduceSend      behind(3)   1      (x2 + x3) + x0
//     3     recvReduceCopySend  behind(0)   0      ((x1 + x2) + x3) + x0: complete, and kept
//     4     recvCopySend        behind(1)   3      chunk 3, complete, and kept
//     5     recvCopySend        behind(2)   2      chunk 2, complete, and kept
//     6     recv                behind(3)   1      nothing: chunk 1, complete, is kept
//
// It runs under --algorithm plain_ring and gives, bit for bit, what every executor gives for the
// schedule of --algorithm ring (schedule/ring.hpp). The executors are the optimisation of it: slots
// moves two slices at a time, mapped leaves the slots out, and both run any schedule.
//
// Patarasu and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
// device/ring.cu is the same loop on GPUs; the verbs' names are NCCL's.
#pragma once

#include "runtime/comm/transport/channel.hpp"
#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm {

// An all_reduce, after its agreement barrier. Any memory, any number of ranks.
void ring_all_reduce(Peers& peers, Channels& channels, const Transfer& transfer);

}  // namespace ringsmith::comm
