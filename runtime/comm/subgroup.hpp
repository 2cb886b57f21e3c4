// Groups of some ranks of a parent group.
//
//     parent      0  1  2  3  4  5  6  7        new_group({4, 6})
//     subgroup                0     1           rank 4 is its rank 0, rank 6 its rank 1; the others
//                                               get a group whose every call throws
//
// The members exchange their records by send and recv in the parent group, and then connect like
// the ranks of any group.
#pragma once

#include "runtime/comm/process_group.hpp"
#include "runtime/comm/types/bootstrap.hpp"

namespace ringsmith::comm {

// Collective over parent. Returns the list. Throws MismatchError if ranks passed different lists,
// and UsageError if the list is empty, names a rank twice or names one outside the parent.
[[nodiscard]] std::vector<int> agreed_members(ProcessGroup& parent, const std::vector<int>& ranks);

// Collective over parent. Returns the ranks with this rank's colour, or none if colour is negative.
[[nodiscard]] std::vector<int> members_of_colour(ProcessGroup& parent, int colour);

// Returns this member's bootstrap for a group of members, which must not outlive the parent.
[[nodiscard]] std::shared_ptr<Bootstrap> make_member_bootstrap(
    ProcessGroup& parent, const std::shared_ptr<Bootstrap>& job, const std::vector<int>& members);

// Collective over the members. Other ranks get a group whose every call throws UsageError. job: the
// parent's bootstrap.
[[nodiscard]] std::shared_ptr<ProcessGroup> make_subgroup(ProcessGroup& parent,
                                                          const std::shared_ptr<Bootstrap>& job,
                                                          const std::vector<int>& members);

}  // namespace ringsmith::comm
