// A simulated RDMA device that is stricter than real ones, and two or more ranks that use it.
//
//   strict    state order and every attribute of a queue pair, lengths, keys and access rights of
//             memory, full queues, a completion queue that runs over, packet numbers that differ
//   late      nothing is done when it is posted: the device goes on while somebody polls, one
//             request at a time, drawn from the seed. Data is read when it is sent, not when
//             posted.
//   one at a  a rank runs until a poll finds nothing, then another. When all find nothing for
//   time      long, that is a hang, reported with what every queue pair waits for.
//
// What a driver uses; students see <infiniband/verbs.h> only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "labs/kit/record.hpp"

namespace kit::verbs {

// Runs body(rank) for each rank. Throws kit::Hang, and what a rank threw.
void run(int ranks, std::uint64_t seed, const std::function<void(int rank)>& body);

// Lets the others and the device go on for so many turns: a rank that is busy elsewhere.
void stand_still(int turns);

// live: objects that nobody gave back, by kind; unread: completions that were in a queue when it
// was destroyed; send_completions; trouble: what the device refused or found, one line each.
void observe(Observation& out);

std::string last_trouble();

// The device has no memory for an object of this kind: for the one after so many. Calls that make
// none: "state" (ibv_modify_qp), "poll" (ibv_poll_cq).
void withhold(const std::string& kind, int after);

}  // namespace kit::verbs
