#include "tests/fault/fork_ranks.hpp"

#include <cstdio>
#include <sstream>

#include "runtime/base/error.hpp"
#include "tests/support/transport.hpp"

namespace ringsmith::test {

namespace {

std::string describe(const std::exception& e) {
  const char* kind = "exception";
  if (dynamic_cast<const MismatchError*>(&e) != nullptr)
    kind = "MismatchError";
  else if (dynamic_cast<const PeerLost*>(&e) != nullptr)
    kind = "PeerLost";
  else if (dynamic_cast<const TimeoutError*>(&e) != nullptr)
    kind = "TimeoutError";
  else if (dynamic_cast<const UsageError*>(&e) != nullptr)
    kind = "UsageError";
  return std::string(kind) + ": " + e.what();
}

}  // namespace

// A rank whose body throws writes "PEER KIND: TEXT" to standard error; the parent parses it.
std::vector<Outcome> run_ranks(int world, comm::GroupOptions options,
                               const std::function<void(comm::ProcessGroup&)>& body) {
  if (options.device.is_cpu()) options.transport = test_transport();
  ForkedRanks ranks(world, [&](std::shared_ptr<comm::Bootstrap> bootstrap, ForkedRanks&) {
    try {
      comm::GroupOptions mine = options;
      if (mine.device.is_cuda())
        mine.device.index = (mine.device.index + bootstrap->rank()) % device_count();
      const DeviceGuard guard(mine.device);
      body(*comm::init_process_group(std::move(bootstrap), mine));
    } catch (const Error& e) {
      std::fprintf(stderr, "%d %s", e.where().peer, describe(e).c_str());
    } catch (const std::exception& e) {
      std::fprintf(stderr, "-1 %s", describe(e).c_str());
    }
  });
  std::vector<Outcome> outcomes;
  for (const Ending& ending : ranks.wait_for_all(std::chrono::seconds(20))) {
    Outcome outcome{!ending.exited, {}, -1, ending.seconds, ending.pid};
    std::istringstream report(ending.errors);
    if (report >> outcome.peer)
      std::getline(report >> std::ws, outcome.error, '\0');
    else
      outcome.error = ending.errors;
    outcomes.push_back(outcome);
  }
  return outcomes;
}

}  // namespace ringsmith::test
