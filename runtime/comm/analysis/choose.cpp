#include "runtime/comm/analysis/choose.hpp"

#include "runtime/base/error.hpp"
#include "runtime/comm/schedule/nodes.hpp"
#include "runtime/comm/schedule/select.hpp"

namespace ringsmith::comm {

const std::vector<std::string>& choosable_algorithms() {
  static const std::vector<std::string> all = {
      "ring", "direct", "tree", "halving_doubling", "double_tree", "hierarchical"};
  return all;
}

std::vector<SizedChoice> fastest_by_size(const CostModel& model, int world,
                                         const std::vector<int>& node_of) {
  constexpr std::size_t kSmallest = 256, kLargest = 256 * 1024 * 1024;
  const auto nodes = ranks_of_nodes(node_of, world);
  std::vector<SizedChoice> choices;
  for (std::size_t bytes = kSmallest; bytes <= kLargest; bytes *= 4) {
    SizedChoice best;
    for (const std::string& algorithm : choosable_algorithms()) {
      // With one node, or one rank on each, it is another of the list.
      if (algorithm == "hierarchical" && (nodes.size() == 1 || nodes.size() == node_of.size()))
        continue;
      const auto schedule =
          make_schedule(Collective::all_reduce, algorithm, world, bytes, 1, 0, node_of);
      const double seconds = predicted_time(model, schedule);
      if (best.algorithm.empty() || seconds < best.seconds)
        best = {static_cast<double>(bytes), algorithm, seconds};
    }
    if (!choices.empty() && choices.back().algorithm == best.algorithm)
      choices.back() = best;
    else
      choices.push_back(best);
  }
  return choices;
}

const SizedChoice& choice_for(const std::vector<SizedChoice>& choices, double bytes) {
  require(!choices.empty(), "there is nothing to choose from");
  for (const SizedChoice& choice : choices)
    if (bytes <= choice.up_to) return choice;
  return choices.back();
}

}  // namespace ringsmith::comm
