#include "labs/apps/common/perf_ranks.hpp"

#include <algorithm>
#include <exception>
#include <thread>

#include "labs/apps/common/agreement.hpp"
#include "runtime/comm/bootstrap/bootstrap.hpp"
#include "runtime/comm/bootstrap/threads.hpp"
#include "runtime/comm/process_group.hpp"

namespace ringsmith::apps {

namespace {

comm::GroupOptions group_options(const PerfOptions& o, int thread) {
  comm::GroupOptions options;
  options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(o.timeout * 1e3));
  options.algorithm = o.algorithm;
  options.bootstrap = o.bootstrap;
  options.transport = o.transport;
  options.interface = o.interface;
  options.sockets = o.sockets;
  options.ranks_per_node = o.ranks_per_node;
  options.flight_folder = o.flight_dir;
  options.engine = o.engine;
  options.device = parse_device(o.device);
  // "cuda" alone: the ranks of a host take its devices in turn.
  if (o.device == "cuda")
    options.device.index =
        (comm::local_rank_hint() * o.ranks_per_process + thread) % device_count();
  return options;
}

// All ranks find the same wrong with their devices: one says it.
std::shared_ptr<comm::ProcessGroup> join_job(std::shared_ptr<comm::Bootstrap> bootstrap,
                                             const comm::GroupOptions& options) {
  const int rank = bootstrap->rank();
  try {
    return comm::init_process_group(std::move(bootstrap), options);
  } catch (const UsageError& error) {
    if (rank == 0) throw;
    throw QuietStop(error.exit_code());
  }
}

// An error that says something comes before one that only stops.
void rethrow_one(const std::vector<std::exception_ptr>& errors) {
  std::exception_ptr quiet;
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const QuietStop&) {
      quiet = error;
    }
  }
  if (quiet) std::rethrow_exception(quiet);
}

}  // namespace

int run_ranks(const PerfOptions& o, const std::function<int(comm::ProcessGroup&)>& body) {
  if (o.ranks_per_process == 1) {
    const comm::GroupOptions options = group_options(o, 0);
    const DeviceGuard guard(options.device);
    return body(*join_job(comm::make_bootstrap(options.bootstrap, options.timeout), options));
  }
  const comm::GroupOptions first = group_options(o, 0);
  const auto meeting = std::make_shared<comm::ThreadRendezvous>(
      comm::make_bootstrap(first.bootstrap, first.timeout), o.ranks_per_process);
  std::vector<int> codes(static_cast<std::size_t>(o.ranks_per_process));
  std::vector<std::exception_ptr> errors(codes.size());
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < codes.size(); ++t)
    threads.emplace_back([&, t] {
      try {
        const int thread = static_cast<int>(t);
        const comm::GroupOptions options = group_options(o, thread);
        const DeviceGuard guard(options.device);
        codes[t] =
            body(*join_job(std::make_shared<comm::ThreadBootstrap>(meeting, thread), options));
      } catch (...) {
        errors[t] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  rethrow_one(errors);
  return *std::max_element(codes.begin(), codes.end());
}

}  // namespace ringsmith::apps
