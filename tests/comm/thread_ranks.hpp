#pragma once

#include <exception>
#include <functional>
#include <type_traits>
#include <vector>

#include "runtime/comm/process_group.hpp"
#include "runtime/job/threads.hpp"
#include "tests/support/transport.hpp"

namespace ringsmith::test {

// Runs `body` on every rank and rethrows the error of the lowest rank that failed. Bodies return
// values to check, because Catch2's assertions are not thread-safe. `adapt` is called for each rank
// and may change its options.
template <class Result>
std::vector<Result> run_threads(
    int world, const std::function<Result(comm::ProcessGroup&)>& body,
    comm::GroupOptions options = {},
    const std::function<void(comm::GroupOptions&, int rank)>& adapt = [](auto&, int) {}) {
  static_assert(!std::is_same_v<Result, bool>, "the bits of a vector<bool> share a word: a race");
  std::vector<Result> results(static_cast<std::size_t>(world));
  const auto errors = comm::run_as_threads(
      std::make_shared<comm::ThreadRendezvous>(world),
      [&](int rank, std::shared_ptr<comm::Bootstrap> bootstrap) {
        comm::GroupOptions mine = options;
        if (mine.transport == comm::Transport::automatic) mine.transport = test_transport();
        adapt(mine, rank);
        const auto group = comm::init_process_group(std::move(bootstrap), mine);
        results[static_cast<std::size_t>(rank)] = body(*group);
      });
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
  return results;
}

}  // namespace ringsmith::test
