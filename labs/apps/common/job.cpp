#include "labs/apps/common/job.hpp"

#include <chrono>
#include <cmath>

#include "labs/apps/common/command_line.hpp"
#include "runtime/comm/bootstrap/place.hpp"
#include "runtime/comm/transport/layout.hpp"

namespace ringsmith::apps {

void add_meeting_options(CommandLine& app, JobOptions& o) {
  app.compare(o.settings, kMayDiffer);
  app.add_option("--bootstrap", o.bootstrap,
                 "how the ranks find each other: mpi, env, slurm, file or self (alone); auto takes "
                 "what the environment shows")
      ->check(one_of({"auto", "mpi", "env", "slurm", "file", "self"}));
  app.add_option("--transport", o.transport,
                 "how data travels: shm (ranks of one host), tcp, rdma (InfiniBand or RoCE); auto "
                 "takes shm within a host and tcp between hosts")
      ->check(one_of({"auto", "shm", "tcp", "rdma"}));
  app.add_option(
      "--interface", o.interface,
      "of tcp: the network interface (eth0) or own address that the other hosts reach; of "
      "rdma: the device, or several that the ranks take in turn (mlx5_0,mlx5_1); "
      "default: one that reaches the others");
  app.add_option(
         "--sockets", o.sockets,
         "of tcp: connections between two ranks, 1 to 3; more where the network limits each "
         "connection, or loses packets")
      ->check(whole(1, comm::kLanes));
  app.add_flag(
      "--checksum", o.checksum,
      "of tcp: send a checksum (CRC32C) with the data within a host as well; between hosts "
      "it is always sent, and bytes that the network changes end the job");
}

void add_node_options(CommandLine& app, JobOptions& o, const std::string& otherwise) {
  app.add_option("--ranks-per-node", o.ranks_per_node,
                 "this many consecutive ranks count as a node, as if on a host of their own; 0: "
                 "nodes are hosts")
      ->check(whole(0, 1024));
  app.add_option("--flight-dir", o.flight_dir,
                 "an existing folder where each rank of a job that fails leaves the last 1,024 "
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
Start it alone, or on N ranks of this host:
  ringrun --standalone --nproc-per-node N -- PROGRAM [options]
  mpirun -np N PROGRAM [options]
(as root mpirun wants OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
in the environment; for more ranks than cores: mpirun --oversubscribe)

All ranks must be given the same options, but where it says "ranks may differ":
the job ends before its first step if they were not.
)";
}

std::string starting_variables() {
  return R"(  RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, LOCAL_RANK
                         set by ringrun, or by hand: the ranks meet at a store
                         over TCP
  RINGSMITH_STORE        'launcher': ringrun holds that store; else rank 0 does
  RINGSMITH_STORE_FD     set by ringrun: a shorter way to that store for ranks
                         of its host
  RINGSMITH_PER_STEP     set by ringrun --per-step
  RINGSMITH_BIND         interface or address it listens on [MASTER_ADDR]
  RINGSMITH_SECRET, RINGSMITH_SECRET_FILE
                         what the ranks must know to take part: 16 characters or
                         more, or a file with them that only you can read
                         (ringrun --make-secret FILE). Data between hosts is
                         neither encrypted nor authenticated
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
