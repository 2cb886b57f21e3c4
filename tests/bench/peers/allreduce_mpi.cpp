// Benchmarks MPI_Allreduce in place. mpirun starts this program, so it ignores -p.
#include <mpi.h>

#include "tests/bench/peers/bench_common.hpp"

struct MpiComm : Comm {
  bool huge;
  explicit MpiComm(bool h) : huge(h) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
  }
  float* buffer(size_t b) override { return private_buffer(b, huge); }
  void allreduce(float* d, size_t n) override {
    MPI_Allreduce(MPI_IN_PLACE, d, static_cast<int>(n), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  void max_doubles(double* v, size_t n) override {
    MPI_Allreduce(MPI_IN_PLACE, v, static_cast<int>(n), MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  }
};

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  Args a = parse_args(argc, argv);
  int rc;
  {
    MpiComm c(a.huge);
    rc = run_table(c, a, "openmpi");
  }
  MPI_Finalize();
  return rc;
}
