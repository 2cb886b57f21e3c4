// The group of all ranks, made once for all test cases.
#pragma once

#include "runtime/comm/process_group.hpp"

namespace ringsmith::test {

// Before the first use: what the group is made with, by default nothing special.
void configure_group(const comm::GroupOptions& options);
comm::ProcessGroup& group();
std::shared_ptr<comm::ProcessGroup> shared_group();
void forget_group();  // before MPI is finalised

}  // namespace ringsmith::test
