// A process's place in its job, read from what its launcher left in the environment.
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
// `automatic` takes the first kind, in this order but with file before env, of which something is
// set. What is set by halves is an error that lists what is missing: a rank that quietly ran alone
// would leave the others waiting.
#pragma once

#include <functional>
#include <string>

#include "runtime/comm/transport/tcp/address.hpp"
#include "runtime/comm/types/bootstrap.hpp"

namespace ringsmith::comm {

// Variables by name; nullptr if not set, as from std::getenv.
using Environment = std::function<const char*(const char*)>;
[[nodiscard]] Environment process_environment();

struct JobPlace {
  BootstrapKind kind = BootstrapKind::self;  // never automatic
  int rank = 0, world = 1;                   // not for mpi, which asks MPI
  tcp::Address store;                        // env, slurm
  std::string bind;                          // where rank 0 listens: an interface or address
  bool launcher_holds_store = false;         // else rank 0 does
  std::string door;                          // of the launcher's store (store/door.hpp); "": none
  std::string folder;                        // file
};

// UsageError in one line, with the remedy, if the variables do not make a place.
[[nodiscard]] JobPlace find_place(BootstrapKind wanted, const Environment& environment);

// Without any check, for programs that want to say something once, or pin themselves to a core,
// before they have joined: what the launcher says, or 0.
[[nodiscard]] int rank_hint(const Environment& environment = process_environment());
[[nodiscard]] int local_rank_hint(const Environment& environment = process_environment());

// The first host of Slurm's notation: "gpu[08-11,20],login1" -> "gpu08".
[[nodiscard]] std::string first_host(const std::string& list);

}  // namespace ringsmith::comm
