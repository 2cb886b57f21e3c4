// Repeats a run of PyTorch's with ranks as threads, over shared memory or with one device per rank
// (RINGSMITH_TEST_DEVICE).
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/process_group.hpp"
#include "runtime/job/threads.hpp"
#include "tests/support/device.hpp"

namespace ringsmith::reference {

// Returns each rank's result of replay(). An exception counts as a difference, so that the next run
// is not skipped.
inline std::vector<std::string> complaints_of(
    int world, const std::function<std::string(std::shared_ptr<comm::ProcessGroup>)>& replay) {
  std::vector<std::string> complaints(static_cast<std::size_t>(world));
  const auto errors = comm::run_as_threads(
      std::make_shared<comm::ThreadRendezvous>(world),
      [&](int r, std::shared_ptr<comm::Bootstrap> bootstrap) {
        std::string& complaint = complaints[static_cast<std::size_t>(r)];
        try {
          comm::GroupOptions options;
          if (!test::device().is_cpu()) options.device = Device::cuda(r % device_count());
          complaint = replay(comm::init_process_group(std::move(bootstrap), options));
        } catch (const std::exception& e) {
          complaint = e.what();
        }
      });
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
  return complaints;
}

}  // namespace ringsmith::reference
