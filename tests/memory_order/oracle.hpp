// A second implementation of RC11, as in the paper: it tries every assignment of stores to loads
// and every order of the stores, and counts the executions that the axioms allow. It shares no code
// with the explorer, which builds executions event by event with vector clocks. This implementation
// is far too slow for more than ten events. An update is one event here.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "labs/kit/explorer/explorer.hpp"

namespace oracle {

using explorer::Order;

enum class What { load, store, add, swap_if_zero, fence };
struct Operation {
  What what;
  int place = 0;
  Order order = explorer::relaxed;
  int value = 1;  // stored, or added
};
using Litmus = std::vector<std::vector<Operation>>;  // [thread]

// Number of executions by outcome: the values that each load and update read, thread by thread,
// then the last value of each of two places.
using Outcomes = std::map<std::string, std::uint64_t>;
Outcomes outcomes(const Litmus& litmus);
std::string text_of(const std::vector<std::vector<int>>& seen, const std::vector<int>& last);

explorer::Result explored(const Litmus& litmus);

std::string described(const Litmus& litmus);

}  // namespace oracle
