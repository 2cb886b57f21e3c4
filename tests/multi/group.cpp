#include "tests/multi/group.hpp"

namespace ringsmith::test {

namespace {
std::shared_ptr<comm::ProcessGroup> the_group;
comm::GroupOptions the_options;
}  // namespace

void configure_group(const comm::GroupOptions& options) { the_options = options; }

std::shared_ptr<comm::ProcessGroup> shared_group() {
  if (!the_group) the_group = comm::init_process_group(the_options);
  return the_group;
}

comm::ProcessGroup& group() { return *shared_group(); }

void forget_group() { the_group.reset(); }

}  // namespace ringsmith::test
