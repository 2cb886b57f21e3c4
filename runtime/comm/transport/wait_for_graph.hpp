// Who is where and waits for whom, in words, for the error that ends a wait.
#pragma once

#include <string>
#include <vector>

#include "runtime/comm/transport/control.hpp"

namespace ringsmith::comm {

// Reads the boards of all ranks while their owners may write them: no more than a snapshot. Ranks
// that wait in a circle, whom nobody but they themselves could have helped, are named at the end.
[[nodiscard]] std::string wait_for_graph(const std::vector<const Board*>& boards);

}  // namespace ringsmith::comm
