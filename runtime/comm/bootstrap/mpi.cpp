#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mpi.h>
#include <thread>
#include <unistd.h>

#include "runtime/base/deadline.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/bootstrap/bootstrap.hpp"

namespace ringsmith::comm {

namespace {

std::atomic<bool> abandoned{false};
constexpr std::chrono::microseconds kMpiPoll{50};

void check(int code, const char* call) {
  if (code != MPI_SUCCESS)
    throw CommError(std::string(call) + " failed with code " + std::to_string(code));
}

// glibc's on_exit, not atexit: the handler must know the exit status.
void leave_mpi(int status, void*) {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) return;
  if (status == 0 && !abandoned) {
    MPI_Finalize();
    return;
  }
  std::fflush(nullptr);
  _exit(status);
}

}  // namespace

MpiBootstrap::MpiBootstrap(std::chrono::milliseconds timeout) : timeout_(timeout) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) {
    int provided = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
    on_exit(leave_mpi, nullptr);
  }
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
}

std::vector<std::string> MpiBootstrap::all_gather(const std::string& record) {
  constexpr std::size_t kRecord = 4096;  // bytes, with the terminating zero
  require(record.size() < kRecord,
          "bootstrap record of " + std::to_string(record.size()) + " bytes: at most 4095 fit");
  struct Buffers {
    std::string mine, all;
  };
  auto b = std::make_unique<Buffers>();
  b->mine = record;
  b->mine.resize(kRecord, '\0');
  b->all.resize(kRecord * static_cast<std::size_t>(size_), '\0');
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallgather(b->mine.data(), kRecord, MPI_BYTE, b->all.data(), kRecord, MPI_BYTE,
                       MPI_COMM_WORLD, &request),
        "MPI_Iallgather");
  const Deadline deadline = Deadline::in(timeout_);
  for (int done = 0; done == 0;) {
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) break;
    if (deadline.passed()) {
      abandoned = true;
      static_cast<void>(b.release());  // MPI may still use them
      throw TimeoutError("not all " + std::to_string(size_) + " ranks of mpirun came within " +
                             std::to_string(timeout_.count()) +
                             " ms: one has not started, or is stuck; --timeout gives them longer",
                         {.rank = rank_, .op = {}});
    }
    std::this_thread::sleep_for(kMpiPoll);
  }
  std::vector<std::string> records;
  for (std::size_t r = 0; r < static_cast<std::size_t>(size_); ++r)
    records.emplace_back(b->all.c_str() + r * kRecord);
  return records;
}

void MpiBootstrap::abandon() { abandoned = true; }

}  // namespace ringsmith::comm
