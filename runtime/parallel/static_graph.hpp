// A static graph: every backward runs like the first.
//
//   backward 1     counts the gradients of each parameter        w 1   v 2   u 0
//                  and leaves all of them to its end
//   backward 2...  w is complete at its 1st, v at its 2nd, u (unused) from the start; anything else
//                  is an error on every rank
//
// A parameter gets several gradients in one backward if another backward() runs inside it, as in
// reentrant checkpointing. Without counting, its bucket would be launched after the first gradient.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ringsmith {

class StaticGraph {
 public:
  explicit StaticGraph(std::size_t parameters) : arrivals_(parameters) {}

  void begin() { arrivals_.assign(arrivals_.size(), 0); }
  // Records a gradient of the parameter. Returns true if it is known to be the last.
  bool arrive(int parameter) {
    const auto p = static_cast<std::size_t>(parameter);
    ++arrivals_[p];
    return known() && arrivals_[p] == expected_[p];
  }
  // Ends a backward. Learns the graph from the first backward. For a later backward, returns how it
  // differs from the first, or "".
  [[nodiscard]] std::string end(const std::vector<std::string>& names, std::uint64_t backward);

  [[nodiscard]] bool known() const { return !expected_.empty(); }
  [[nodiscard]] bool unused(int parameter) const {
    return known() && expected_[static_cast<std::size_t>(parameter)] == 0;
  }

 private:
  std::vector<int> arrivals_;  // by parameter
  std::vector<int> expected_;
};

}  // namespace ringsmith
