#pragma once

#include <exception>
#include <functional>
#include <thread>
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
  const auto rendezvous = std::make_shared<comm::ThreadRendezvous>(world);
  std::vector<Result> results(static_cast<std::size_t>(world));
  std::vector<std::exception_ptr> errors(results.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      const auto r = static_cast<std::size_t>(rank);
      try {
        comm::GroupOptions mine = options;
        if (mine.transport == comm::Transport::automatic) mine.transport = test_transport();
        adapt(mine, rank);
        const auto group = comm::init_process_group(
            std::make_shared<comm::ThreadBootstrap>(rendezvous, rank), mine);
        results[r] = body(*group);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
  return results;
}

}  // namespace ringsmith::test
