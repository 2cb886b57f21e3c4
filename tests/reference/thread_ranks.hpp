// Repeats a run of PyTorch's with ranks as threads, over shared memory or with one device per rank
// (RINGSMITH_TEST_DEVICE).
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/process_group.hpp"
#include "runtime/job/threads.hpp"
#include "tests/support/device.hpp"

namespace ringsmith::reference {

// Returns each rank's result of replay(). An exception counts as a difference, so that the next run
// is not skipped.
inline std::vector<std::string> complaints_of(
    int world, const std::function<std::string(std::shared_ptr<comm::ProcessGroup>)>& replay) {
  const auto rendezvous = std::make_shared<comm::ThreadRendezvous>(world);
  std::vector<std::string> complaints(static_cast<std::size_t>(world));
  std::vector<std::thread> ranks;
  for (int r = 0; r < world; ++r)
    ranks.emplace_back([&, r] {
      std::string& complaint = complaints[static_cast<std::size_t>(r)];
      try {
        comm::GroupOptions options;
        if (!test::device().is_cpu()) options.device = Device::cuda(r % device_count());
        complaint = replay(comm::init_process_group(
            std::make_shared<comm::ThreadBootstrap>(rendezvous, r), options));
      } catch (const std::exception& e) {
        complaint = e.what();
      }
    });
  for (std::thread& rank : ranks) rank.join();
  return complaints;
}

}  // namespace ringsmith::reference
