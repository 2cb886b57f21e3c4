// Runs one all_reduce on the default path, for call_path.py. It is compiled for coverage, resets
// the counters after the warm-up, and dumps them after the call.
#include <cstdlib>

#include "runtime/comm/process_group.hpp"

extern "C" void __gcov_reset();
extern "C" void __gcov_dump();

int main(int argc, char** argv) {
  using namespace ringsmith;
  const std::size_t bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : std::size_t{1} << 20;
  const auto group = comm::init_process_group();
  const auto memory = group->allocate(Bytes(bytes));
  const auto data = memory->as<float>();
  constexpr int kWarmUp = 3;
  // All calls come from one line, because a group records each call site once.
  for (int call = 0; call <= kWarmUp; ++call) {
    if (call == kWarmUp) {
      group->barrier();
      __gcov_reset();
    }
    group->all_reduce(data);
  }
  if (group->rank() == 0) __gcov_dump();
  setenv("GCOV_PREFIX", "/dev/null", 1);  // code that runs at exit is not recorded
  return 0;
}
