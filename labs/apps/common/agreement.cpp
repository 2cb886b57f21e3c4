#include "labs/apps/common/agreement.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <span>
#include <thread>
#include <vector>

namespace ringsmith::apps {

namespace {
constexpr std::chrono::seconds kLastWords{2};
}

void together(comm::ProcessGroup& group, const std::function<void()>& body) {
  std::exception_ptr mine;
  std::array<std::int32_t, 1> code{0};
  try {
    body();
  } catch (const CommError&) {
    throw;  // the group itself is broken: there is nothing left to agree through
  } catch (const Error& e) {
    mine = std::current_exception();
    code[0] = static_cast<std::int32_t>(e.exit_code());
  }
  std::vector<std::int32_t> codes(static_cast<std::size_t>(group.size()));
  group.all_gather(std::span<const std::int32_t>(code), std::span<std::int32_t>(codes));
  for (int r = 0; r < group.size(); ++r) {
    const std::int32_t c = codes[static_cast<std::size_t>(r)];
    if (c == 0) continue;
    if (r == group.rank()) std::rethrow_exception(mine);
    throw QuietStop(static_cast<ExitCode>(c));
  }
}

int run_program(const char* name, const std::function<int()>& body) {
  return run_main(name, [&]() -> int {
    try {
      return body();
    } catch (const QuietStop& e) {
      // mpirun ends all ranks as soon as one has failed. Were that one of us, the rank that has
      // something to say might be cut off before it has said it: let it be first.
      std::this_thread::sleep_for(kLastWords);
      return static_cast<int>(e.exit_code());
    }
  });
}

}  // namespace ringsmith::apps
