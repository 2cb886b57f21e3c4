// A simulated RDMA device that is stricter than real ones, and two or more ranks that use it.
//
//   strict    it checks the order of states, every attribute of a queue pair, the lengths, keys and
//             access rights of memory, full queues, completion queue overruns, and packet numbers
//   late      posting executes nothing: the device advances only while a rank polls, one request at
//             a time, drawn from the seed. Data is read when it is sent, not when it is posted.
//   one at a  a rank runs until a poll finds nothing, and another rank continues. If the polls of
//   time      all ranks find nothing for long, that is a hang, and the report shows each rank.
//
// This header is for drivers; students see only <infiniband/verbs.h>.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "labs/kit/record.hpp"

namespace kit::verbs {

// Runs body(rank) for each rank. Throws kit::Hang, or rethrows a rank's exception.
void run(int ranks, std::uint64_t seed, const std::function<void(int rank)>& body);

// Lets the other ranks and the device run for `turns` turns: simulates a rank that is busy
// elsewhere.
void stand_still(int turns);

// live: objects that were not destroyed, by kind. unread: completions of sends left in a destroyed
// queue. trouble: errors, and requests that the device rejected, one per line.
void observe(Observation& out);

std::string last_trouble();

// Simulates a lack of memory for one object of this kind, after `after` successful creations. Also
// accepts two calls that create no object: "state" (ibv_modify_qp) and "poll" (ibv_poll_cq).
void withhold(const std::string& kind, int after);

}  // namespace kit::verbs
