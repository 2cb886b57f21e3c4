#include "runtime/comm/outsider.hpp"

#include "runtime/base/error.hpp"

namespace ringsmith::comm {

Outsider::Outsider(int rank, const std::vector<int>& members, GroupOptions options)
    : size_(static_cast<int>(members.size())), options_(std::move(options)) {
  std::string list;
  for (const int member : members) list += (list.empty() ? "" : ", ") + std::to_string(member);
  why_ = "rank " + std::to_string(rank) + " is not in the group of " +
         (members.empty() ? "no ranks" : "ranks " + list) +
         ": only its members may make calls in it";
}

void Outsider::refuse(const char* call) const { throw UsageError(std::string(call) + ": " + why_); }

}  // namespace ringsmith::comm
