// The group of all ranks, made once for all test cases.
#pragma once

#include "runtime/comm/process_group.hpp"

namespace ringsmith::test {

comm::ProcessGroup& group();
std::shared_ptr<comm::ProcessGroup> shared_group();
void forget_group();  // before MPI is finalised

}  // namespace ringsmith::test
