// A process's place in its job, read from the variables that its launcher has set.
//
// clang-format off
//     kind    set by         variables
//     mpi     mpirun         OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_RANK (Open MPI does the rest)
//     env     ringrun, hand  RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
//     slurm   srun           SLURM_STEP_ID, SLURM_PROCID, SLURM_STEP_NUM_TASKS, ...
//     file    hand           RINGSMITH_MEETING_DIR, RANK, WORLD_SIZE
//     self    -              a process alone
// clang-format on
//
// `automatic` uses the first of these variables that is set: OMPI_COMM_WORLD_SIZE (mpi);
// RINGSMITH_MEETING_DIR (file); RANK or WORLD_SIZE (env); SLURM_STEP_ID (slurm, or mpi if PMIX_RANK
// is set, too); MASTER_ADDR or MASTER_PORT (env). An incomplete set is an error, because a rank
// that silently ran alone would leave the others waiting.
#pragma once

#include <functional>
#include <string>

#include "runtime/comm/transport/tcp/address.hpp"
#include "runtime/comm/types/bootstrap.hpp"

namespace ringsmith::comm {

// Like std::getenv.
using Environment = std::function<const char*(const char*)>;
[[nodiscard]] Environment process_environment();

struct JobPlace {
  BootstrapKind kind = BootstrapKind::self;  // never automatic
  int rank = 0, world = 1;                   // not for mpi: MPI knows them
  tcp::Address store;                        // for env and slurm
  std::string bind;                          // where rank 0 listens: an interface or address
  bool launcher_holds_store = false;         // otherwise rank 0 does
  std::string door;                          // of the launcher's store (store/door.hpp); "": none
  std::string folder;                        // for file
};

// Throws UsageError if variables are missing or invalid.
[[nodiscard]] JobPlace find_place(BootstrapKind wanted, const Environment& environment);

// Return the launcher's value, unchecked, or 0 if there is none. For programs that print on one
// rank only, or pin themselves to a core, before they join the job.
[[nodiscard]] int rank_hint(const Environment& environment = process_environment());
[[nodiscard]] int local_rank_hint(const Environment& environment = process_environment());

// Returns the first host of a list in Slurm's notation: "gpu[08-11,20],login1" -> "gpu08".
[[nodiscard]] std::string first_host(const std::string& list);

}  // namespace ringsmith::comm
