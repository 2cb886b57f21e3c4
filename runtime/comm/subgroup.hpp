// Groups of some ranks of a group: who is in them, and how they find each other.
//
//     parent      0  1  2  3  4  5  6  7        new_group({4, 6})
//     subgroup                0     1           rank 4 is its rank 0, rank 6 its rank 1; the others
//                                               get a group whose every call names them
//
// The members exchange their records through messages of the parent, and then connect as the ranks
// of any group do: a subgroup has everything of its own.
#pragma once

#include "runtime/comm/process_group.hpp"
#include "runtime/comm/types/bootstrap.hpp"

namespace ringsmith::comm {

// Collective over parent. The list, if all ranks gave the same one; MismatchError if not, and
// UsageError unless it names ranks of the parent, at least one, and none twice.
[[nodiscard]] std::vector<int> agreed_members(ProcessGroup& parent, const std::vector<int>& ranks);

// Collective over parent. The ranks that gave the colour of this one; none if it is negative.
[[nodiscard]] std::vector<int> members_of_colour(ProcessGroup& parent, int colour);

// Collective over the members. For the others, and where there are none, a group that refuses. job
// is the bootstrap of the parent.
[[nodiscard]] std::shared_ptr<ProcessGroup> make_subgroup(ProcessGroup& parent,
                                                          const std::shared_ptr<Bootstrap>& job,
                                                          const std::vector<int>& members);

}  // namespace ringsmith::comm
