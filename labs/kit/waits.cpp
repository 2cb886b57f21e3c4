#include "labs/kit/waits.hpp"

#include <algorithm>

namespace kit {
namespace {

// Follows the first peer of each rank until a rank waits for none or the path closes a cycle.
std::vector<int> cycle_of(const std::vector<Wait>& waits) {
  for (std::size_t from = 0; from < waits.size(); ++from) {
    std::vector<int> path{int(from)};
    while (!waits[std::size_t(path.back())].peers.empty()) {
      const int next = waits[std::size_t(path.back())].peers.front();
      if (next < 0 || std::size_t(next) >= waits.size()) break;
      const bool closes = std::find(path.begin(), path.end(), next) != path.end();
      path.push_back(next);
      if (closes) return {std::find(path.begin(), path.end(), next), path.end()};
    }
  }
  return {};
}

}  // namespace

std::string describe(const std::vector<Wait>& waits) {
  std::string text;
  for (const Wait& wait : waits) {
    text += "  rank " + std::to_string(wait.rank) + ": ";
    if (wait.done)
      text += "has returned";
    else if (wait.peers.empty())
      text += wait.what.empty() ? "running, not in a call of the kit" : wait.what;
    else
      text += wait.what;
    text += '\n';
  }
  const std::vector<int> cycle = cycle_of(waits);
  if (!cycle.empty()) {
    text += "  wait-for cycle:";
    for (std::size_t i = 0; i < cycle.size(); ++i)
      text += (i ? " -> " : " ") + std::to_string(cycle[i]);
    text += '\n';
  }
  return text;
}

}  // namespace kit
