// Loads Open MPI only if the ranks meet through it (place.hpp). This file is neither compiled nor
// linked against Open MPI, so programs do not depend on libmpi, libhwloc and libevent for eight
// calls that other launchers do not need.
//
// The declarations here follow Open MPI's own ABI, in which handles are addresses of objects that
// the library exports. The ABI is the same in all releases whose library is libmpi.so.40. MPICH and
// its derivatives export no such objects and are rejected.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <memory>
#include <thread>
#include <unistd.h>

#include "runtime/base/deadline.hpp"
#include "runtime/base/error.hpp"
#include "runtime/job/bootstrap.hpp"

namespace ringsmith::comm {

namespace {

std::atomic<bool> abandoned{false};
constexpr std::chrono::microseconds kMpiPoll{50};

void check(int code, const char* call) {
  if (code != 0)  // MPI_SUCCESS
    throw CommError(std::string(call) + " failed with code " + std::to_string(code));
}

// Declarations as in mpi.h.
using Handle = void*;
constexpr int kThreadSerialized = 2;
struct OpenMpi {
  int (*finalized)(int* flag);
  int (*finalize)();
  int (*initialized)(int* flag);
  int (*init_thread)(int* argc, char*** argv, int required, int* provided);
  int (*comm_rank)(Handle comm, int* rank);
  int (*comm_size)(Handle comm, int* size);
  int (*iallgather)(const void* sent, int sent_count, Handle sent_type, void* received,
                    int received_count, Handle received_type, Handle comm, Handle* request);
  int (*test)(Handle* request, int* flag, void* status);
  Handle comm_world, byte, no_request;
};

// Returns the Open MPI with which the program is linked, or else the installed one.
void* library_of_open_mpi() {
  const std::string remedy =
      "; install Open MPI (Debian: openmpi-bin), or start the program with ringrun";
  if (dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world") != nullptr) return RTLD_DEFAULT;
  require(dlsym(RTLD_DEFAULT, "MPI_Init_thread") == nullptr,
          "the program is linked with an MPI that is not Open MPI: link Open MPI, or start the "
          "program with ringrun");
  // RTLD_GLOBAL, because the modules that the library opens look up its symbols there.
  std::string why;
  for (const char* name : {"libmpi.so.40", "libmpi.so"}) {
    if (void* const opened = dlopen(name, RTLD_NOW | RTLD_GLOBAL); opened != nullptr) {
      require(dlsym(opened, "ompi_mpi_comm_world") != nullptr,
              std::string("mpirun's ranks meet through Open MPI, but this machine's ") + name +
                  " is another MPI" + remedy);
      return opened;
    }
    if (const char* const said = dlerror(); said != nullptr && why.empty()) why = said;
  }
  throw UsageError("mpirun's ranks meet through Open MPI, and its library cannot be opened (" +
                   why + ")" + remedy);
}

const OpenMpi& open_mpi() {
  static const OpenMpi opened = [] {
    void* const library = library_of_open_mpi();
    const auto find = [&]<class T>(const char* name, T& out) {
      void* const found = dlsym(library, name);
      require(found != nullptr, std::string("Open MPI's library has no ") + name +
                                    ": start the program with ringrun");
      out = reinterpret_cast<T>(found);
    };
    OpenMpi mpi{};
    find("MPI_Finalized", mpi.finalized);
    find("MPI_Finalize", mpi.finalize);
    find("MPI_Initialized", mpi.initialized);
    find("MPI_Init_thread", mpi.init_thread);
    find("MPI_Comm_rank", mpi.comm_rank);
    find("MPI_Comm_size", mpi.comm_size);
    find("MPI_Iallgather", mpi.iallgather);
    find("MPI_Test", mpi.test);
    find("ompi_mpi_comm_world", mpi.comm_world);
    find("ompi_mpi_byte", mpi.byte);
    find("ompi_request_null", mpi.no_request);
    return mpi;
  }();
  return opened;
}

// Finalises MPI only after a success. Registered with glibc's on_exit instead of atexit, because it
// needs the exit status.
void leave_mpi(int status, void*) {
  int finalized = 0;
  open_mpi().finalized(&finalized);
  if (finalized != 0) return;
  if (status == 0 && !abandoned) {
    open_mpi().finalize();
    return;
  }
  std::fflush(nullptr);
  _exit(status);
}

}  // namespace

MpiBootstrap::MpiBootstrap(std::chrono::milliseconds timeout) : timeout_(timeout) {
  int initialized = 0;
  const OpenMpi& mpi = open_mpi();
  mpi.initialized(&initialized);
  if (initialized == 0) {
    int provided = 0;
    check(mpi.init_thread(nullptr, nullptr, kThreadSerialized, &provided), "MPI_Init_thread");
    on_exit(leave_mpi, nullptr);
  }
  check(mpi.comm_rank(mpi.comm_world, &rank_), "MPI_Comm_rank");
  check(mpi.comm_size(mpi.comm_world, &size_), "MPI_Comm_size");
}

std::vector<std::string> MpiBootstrap::all_gather(const std::string& record) {
  check_record(record);
  struct BothSides {
    std::string mine, all;
  };
  auto b = std::make_unique<BothSides>();
  b->mine = record;
  b->mine.resize(kRecordRoom, '\0');
  b->all.resize(kRecordRoom * static_cast<std::size_t>(size_), '\0');
  const OpenMpi& mpi = open_mpi();
  Handle request = mpi.no_request;
  check(mpi.iallgather(b->mine.data(), kRecordRoom, mpi.byte, b->all.data(), kRecordRoom, mpi.byte,
                       mpi.comm_world, &request),
        "MPI_Iallgather");
  const Deadline deadline = Deadline::in(timeout_);
  for (int done = 0; done == 0;) {
    check(mpi.test(&request, &done, nullptr), "MPI_Test");
    if (done != 0) break;
    if (deadline.passed()) {
      abandoned = true;
      static_cast<void>(b.release());  // MPI may still use the buffers
      throw TimeoutError("not all " + std::to_string(size_) + " ranks of mpirun arrived within " +
                             std::to_string(timeout_.count()) +
                             " ms: one has not started, or is stuck; a longer --timeout may help",
                         {.rank = rank_, .op = {}});
    }
    std::this_thread::sleep_for(kMpiPoll);
  }
  std::vector<std::string> records;
  for (std::size_t r = 0; r < static_cast<std::size_t>(size_); ++r)
    records.emplace_back(b->all.c_str() + r * kRecordRoom);
  return records;
}

void MpiBootstrap::abandon() { abandoned = true; }

}  // namespace ringsmith::comm
