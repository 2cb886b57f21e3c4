// The group of all ranks, created once for all test cases.
#pragma once

#include "runtime/comm/process_group.hpp"

namespace ringsmith::test {

// Sets the options of the group. Optional; call it before the group's first use.
void configure_group(const comm::GroupOptions& options);
comm::ProcessGroup& group();
std::shared_ptr<comm::ProcessGroup> shared_group();
void forget_group();  // before MPI is finalized

}  // namespace ringsmith::test
