#include "runtime/parallel/static_graph.hpp"

#include <fmt/core.h>

namespace ringsmith {

std::string StaticGraph::end(const std::vector<std::string>& names, std::uint64_t backward) {
  if (!known()) {
    expected_ = arrivals_;
    return {};
  }
  for (std::size_t p = 0; p < expected_.size(); ++p)
    if (arrivals_[p] != expected_[p])
      return fmt::format(
          "static_graph: parameter '{}' got {} gradient{} in backward {}, {} in the first: use it "
          "the same way in every step, or do not set static_graph",
          names[p], arrivals_[p], arrivals_[p] == 1 ? "" : "s", backward, expected_[p]);
  return {};
}

}  // namespace ringsmith
