// Who is where and waits for whom, in words, for the error that ends a wait.
#pragma once

#include <string>
#include <vector>

#include "runtime/comm/transport/control.hpp"

namespace ringsmith::comm {

// What is seen of a rank: its board, and of a remote one also its two entries of the roll call.
struct Sight {
  const Board* board = nullptr;
  const Arrival* arrivals = nullptr;  // null: not remote, so that the board is up to date
};

// Reads the boards of all ranks while their owners may write them: no more than a snapshot. A
// remote rank shows its board only while it waits; of others there is their last answer. Ranks
// that wait in a circle, whom nobody but they themselves could have helped, are named at the end.
[[nodiscard]] std::string wait_for_graph(const std::vector<Sight>& ranks);

}  // namespace ringsmith::comm
