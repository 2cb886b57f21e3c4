#include "labs/apps/common/job.hpp"

#include <chrono>
#include <cmath>

#include "labs/apps/common/command_line.hpp"
#include "runtime/comm/transport/layout.hpp"
#include "runtime/job/place.hpp"

namespace ringsmith::apps {

void add_meeting_options(CommandLine& app, JobOptions& o) {
  app.compare(o.settings, kMayDiffer);
  app.add_option("--bootstrap", o.bootstrap,
                 "how the ranks find each other: mpi, env, slurm, file or self (alone); auto: "
                 "chosen by the environment")
      ->check(one_of({"auto", "mpi", "env", "slurm", "file", "self"}));
  app.add_option("--transport", o.transport,
                 "how data travels: shm (ranks of one host), tcp, rdma (InfiniBand or RoCE); auto: "
                 "shm within a host, tcp between hosts")
      ->check(one_of({"auto", "shm", "tcp", "rdma"}));
  app.add_option("--interface", o.interface,
                 "tcp: the network interface (eth0) or local address that the other hosts can "
                 "reach; rdma: the device, or several, which the ranks use round-robin "
                 "(mlx5_0,mlx5_1); default: one that reaches the others");
  app.add_option("--sockets", o.sockets,
                 "tcp: connections between each pair of ranks, 1 to 3; use more if the network "
                 "limits each connection or loses packets")
      ->check(whole(1, comm::kLanes));
  app.add_flag("--checksum", o.checksum,
               "tcp: send a checksum (CRC32C) with the data within a host as well; between hosts "
               "it is always sent, and a mismatch ends the job");
}

void add_node_options(CommandLine& app, JobOptions& o, const std::string& otherwise) {
  app.add_option("--ranks-per-node", o.ranks_per_node,
                 "treat this many consecutive ranks as one node, as if on a separate host; 0: "
                 "nodes are hosts")
      ->check(whole(0, 1024));
  app.add_option("--flight-dir", o.flight_dir,
                 "existing folder into which each rank of a failed job writes its last 1,024 "
                 "operations, for flight_reader [" +
                     otherwise + "]")
      ->default_text("")
      ->check(existing_folder())
      ->environment("RINGSMITH_FLIGHT_DIR");
}

comm::GroupOptions group_options(const JobOptions& o) {
  return {.timeout = std::chrono::milliseconds(std::llround(o.timeout * 1e3)),
          .device = {},
          .bootstrap = comm::parse_bootstrap(o.bootstrap),
          .transport = comm::parse_transport(o.transport),
          .interface = o.interface,
          .sockets = o.sockets,
          .checksum = o.checksum,
          .ranks_per_node = o.ranks_per_node,
          .flight_folder = o.flight_dir,
          .settings = o.settings};
}

Device device_of_rank(const std::string& name, int ranks_per_process, int thread) {
  const Device named = parse_device(name);
  if (name != "cuda") return named;
  require_device(named);
  return Device::cuda((comm::local_rank_hint() * ranks_per_process + thread) % device_count());
}

std::string how_to_start() {
  return R"(
Start it as one rank, or as N ranks on this host:
  ringrun --standalone --nproc-per-node N -- PROGRAM [options]
  mpirun -np N PROGRAM [options]
(as root, mpirun requires OMPI_ALLOW_RUN_AS_ROOT=1 and
OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 in the environment; with more ranks than cores,
add --oversubscribe)

All ranks must have the same options, except those marked "ranks may differ";
otherwise the job ends before its first step.
)";
}

std::string starting_variables() {
  return R"(  RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, LOCAL_RANK
                         set by ringrun, or by hand: the ranks meet at a store
                         over TCP
  RINGSMITH_STORE        'launcher': ringrun holds that store; else rank 0 does
  RINGSMITH_STORE_FD     set by ringrun: a socket by which ranks on its host
                         reach that store
  RINGSMITH_PER_STEP     set by ringrun --per-step
  RINGSMITH_BIND         interface or address that the store listens on
                         [MASTER_ADDR]
  RINGSMITH_SECRET, RINGSMITH_SECRET_FILE
                         the job's secret, without which no rank can join: 16
                         characters or more, or a file with them that only you
                         can read (ringrun --make-secret FILE). Data between
                         hosts is neither encrypted nor authenticated
  RINGSMITH_FLIGHT_DIR   as --flight-dir
  RINGSMITH_MEETING_DIR  with RANK and WORLD_SIZE: the ranks meet in this folder
                         instead
  OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_LOCAL_RANK,
  PMIX_RANK
                         set by mpirun or srun --mpi=pmix: the ranks meet
                         through Open MPI
  SLURM_JOB_ID, SLURM_STEP_ID, SLURM_STEP_NODELIST, SLURM_STEP_NUM_TASKS,
  SLURM_STEP_RESV_PORTS, SLURM_PROCID, SLURM_LOCALID
                         set by srun: the ranks meet at a store that rank 0
                         holds
)";
}

}  // namespace ringsmith::apps
