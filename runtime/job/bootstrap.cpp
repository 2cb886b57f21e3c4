// Selects this process's bootstrap and holds its only instance. Also creates the group of all ranks
// (process_group.hpp), because a group does not know how its ranks find each other.
#include "runtime/job/bootstrap.hpp"

#include <mutex>

#include "runtime/base/error.hpp"
#include "runtime/base/process.hpp"
#include "runtime/comm/process_group.hpp"
#include "runtime/job/store/secret.hpp"
#include "runtime/job/threads.hpp"

namespace ringsmith::comm {

namespace {

Secret secret_of_the_job(BootstrapKind kind) {
  if (auto secret = Secret::from_environment(); secret) return std::move(*secret);
  throw UsageError("--bootstrap " + std::string(name_of(kind)) +
                   ": ranks that meet over TCP share a secret, so that no stranger can join: set " +
                   kSecretVariable + " (the same 16 characters or more for all), or " +
                   kSecretFileVariable + " to a file that 'ringrun --make-secret FILE' made");
}

std::shared_ptr<Bootstrap> make(const JobPlace& place, std::chrono::milliseconds timeout) {
  switch (place.kind) {
    case BootstrapKind::mpi:
      return std::make_shared<MpiBootstrap>(timeout);
    case BootstrapKind::env:
    case BootstrapKind::slurm:
      if (place.world == 1) return std::make_shared<SelfBootstrap>();
      return std::make_shared<StoreBootstrap>(place, secret_of_the_job(place.kind), timeout);
    case BootstrapKind::file:
      return std::make_shared<FileBootstrap>(place.folder, place.rank, place.world, timeout);
    default:
      return std::make_shared<SelfBootstrap>();
  }
}

// Raises the limit on open files. Throws if the limit remains too low for one file per other rank:
// the transports would exceed it on some ranks only, with many different errors.
void allow_files(int world) {
  constexpr std::uint64_t kPlenty = 8, kOwn = 64;  // per other rank; for the process itself
  constexpr std::uint64_t kBare = 8;               // for the process, plus one per other rank
  const auto ranks = static_cast<std::uint64_t>(world);
  const std::uint64_t allowed = allow_open_files(kOwn + kPlenty * ranks);
  if (allowed < kBare + ranks)
    throw ResourceError("a job of " + std::to_string(world) + " ranks needs about " +
                        std::to_string(kOwn + 2 * ranks) +
                        " open files per rank, but this process is limited to " +
                        std::to_string(allowed) + ": raise it with 'ulimit -n " +
                        std::to_string(kOwn + kPlenty * ranks) + "'");
}

std::shared_ptr<Bootstrap>& assigned() {
  static std::shared_ptr<Bootstrap> instance;
  return instance;
}

}  // namespace

void assign_bootstrap(std::shared_ptr<Bootstrap> bootstrap) {
  allow_files(bootstrap->size());
  assigned() = std::move(bootstrap);
}

// A process joins its job only once: a second group of the same kind uses the first group's
// bootstrap.
std::shared_ptr<Bootstrap> make_bootstrap(BootstrapKind kind, std::chrono::milliseconds timeout) {
  // Exit handlers run in reverse order, and libcrypto must outlive the thread of rank 0's store.
  static const bool crypto = store::start_crypto();
  static std::mutex mutex;
  static std::shared_ptr<Bootstrap> joined;
  static BootstrapKind joined_as = BootstrapKind::self;
  require(crypto, "libcrypto cannot be initialised");
  if (kind == BootstrapKind::automatic && assigned()) return assigned();
  const JobPlace place = find_place(kind, process_environment());
  const std::lock_guard lock(mutex);
  if (!joined || joined_as != place.kind) {
    if (place.world > 1) allow_files(place.world);
    joined = make(place, checked_timeout("the bootstrap's timeout", timeout));
  }
  joined_as = place.kind;
  return joined;
}

std::shared_ptr<ProcessGroup> init_process_group(const GroupOptions& options) {
  const auto timeout = checked_timeout("GroupOptions::timeout", options.timeout);
  return init_process_group(make_bootstrap(options.bootstrap, timeout), options);
}

}  // namespace ringsmith::comm
