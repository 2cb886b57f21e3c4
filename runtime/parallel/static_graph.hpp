// A static graph: every backward runs as the first did.
//
//   backward 1     counts the gradients of each parameter        w 1   v 2   u 0
//                  and leaves all of them to its end
//   backward 2...  w is complete at its 1st, v at its 2nd, u (unused) at once; anything else is an
//                  error on every rank
//
// A parameter gets several gradients in one backward when a backward() runs inside of it, as
// reentrant checkpointing does. Without this knowledge its bucket would leave after the first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ringsmith {

class StaticGraph {
 public:
  explicit StaticGraph(std::size_t parameters) : arrivals_(parameters) {}

  void begin() { arrivals_.assign(arrivals_.size(), 0); }  // a backward
  // A gradient of the parameter has come; true if it is known to be the last one.
  bool arrive(int parameter) {
    const auto p = static_cast<std::size_t>(parameter);
    ++arrivals_[p];
    return known() && arrivals_[p] == expected_[p];
  }
  // The end of a backward, by its number: learns from the first; then empty, or what has changed.
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
