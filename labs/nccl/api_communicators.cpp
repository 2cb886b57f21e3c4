// nccl.h's functions for communicators: made, divided, shrunk, grown, asked, ended.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#ifdef RINGSMITH_VGPU
#include "kernels/vgpu/settings.hpp"
#endif
#include "labs/nccl/arguments.hpp"
#include "labs/nccl/rendezvous.hpp"

namespace ringsmith::nccl {

namespace {

constexpr const char* kTimeoutVariable = "RINGSMITH_NCCL_TIMEOUT_MS";
constexpr int kDefaultTimeout = 60'000;    // ms
constexpr long kLongestWait = 80'000'000;  // ms; the emulator accepts at most a day

// Read when the library is loaded, because a thread of the program may change the environment
// later.
const std::string kTimeoutText = [] {
  const char* const text = std::getenv(kTimeoutVariable);
  return std::string(text == nullptr ? "" : text);
}();

std::chrono::milliseconds timeout() {
  if (kTimeoutText.empty()) return std::chrono::milliseconds(kDefaultTimeout);
  int value = 0;
  const char* end = kTimeoutText.data() + kTimeoutText.size();
  const auto [stop, error] = std::from_chars(kTimeoutText.data(), end, value);
  if (error != std::errc() || stop != end || value < 1)
    throw Refusal(ncclInvalidUsage, std::string(kTimeoutVariable) + "=" + kTimeoutText +
                                        ": give a whole number of milliseconds, 1 or more");
  return std::chrono::milliseconds(value);
}
// ---- making communicators ----

void check_config(const ncclConfig_t* config) {
  if (config == nullptr) return;
  if (config->magic != 0xcafebeefU)
    refuse("config was not initialised with NCCL_CONFIG_INITIALIZER");
  if (config->blocking != NCCL_CONFIG_UNDEF_INT && config->blocking != 0 && config->blocking != 1)
    refuse("config: blocking is " + std::to_string(config->blocking) + ": give 0 or 1");
}

ncclResult_t init_rank(const char* name, ncclComm_t* out, int world, const ncclUniqueId& id,
                       int rank, const ncclConfig_t* config) {
  return in_group(name, [&] {
    check_pointer(out, "comm");
    *out = nullptr;
    if (world < 1 || world > comm::cuda_ipc::kMostRanks)
      refuse("nranks is " + std::to_string(world) + ": give 1 to " +
             std::to_string(comm::cuda_ipc::kMostRanks));
    if (rank < 0 || rank >= world)
      refuse("rank is " + std::to_string(rank) + ": give 0 to " + std::to_string(world - 1));
    check_config(config);
    const Device device = current_device();
    submit(device, [=, deadline = timeout()] {
      keep(out, std::make_unique<ncclComm>(join(id, rank, world, deadline), device, deadline));
    });
  });
}

// Makes two exchanges over the parent: one of the colors and keys, and one of the ids that the
// first rank of each color creates.
void split(ncclComm& parent, int color, int key, ncclComm_t* out) {
  struct Member {
    int color, key, rank;
  };
  std::vector<Member> members;
  const auto records =
      parent.bootstrap().all_gather(std::to_string(color) + ' ' + std::to_string(key));
  for (std::size_t r = 0; r < records.size(); ++r) {
    Member m{0, 0, static_cast<int>(r)};
    if (std::sscanf(records[r].c_str(), "%d %d", &m.color, &m.key) == 2 && m.color == color)
      members.push_back(m);
  }
  std::stable_sort(members.begin(), members.end(),
                   [](const Member& a, const Member& b) { return a.key < b.key; });
  const bool takes_part = color != NCCL_SPLIT_NOCOLOR;
  std::string mine;
  if (takes_part && members.front().rank == parent.rank()) {
    const ncclUniqueId id = make_id();
    mine.assign(id.internal, sizeof id.internal);
  }
  const auto ids = parent.bootstrap().all_gather(mine);
  if (!takes_part) return;
  ncclUniqueId id{};
  const std::string& theirs = ids[static_cast<std::size_t>(members.front().rank)];
  if (theirs.size() != sizeof id.internal)
    throw Refusal(ncclRemoteError, "rank " + std::to_string(members.front().rank) +
                                       " of the parent created no id for this color");
  std::memcpy(id.internal, theirs.data(), theirs.size());
  const auto rank = std::find_if(members.begin(), members.end(),
                                 [&](const Member& m) { return m.rank == parent.rank(); }) -
                    members.begin();
  keep(out, std::make_unique<ncclComm>(join(id, static_cast<int>(rank),
                                            static_cast<int>(members.size()), parent.timeout()),
                                       parent.device(), parent.timeout()));
}

std::string as_record(const ncclUniqueId* id) {
  return id == nullptr ? std::string() : std::string(id->internal, sizeof id->internal);
}

// The ranks of `parent` that are not excluded meet in the parent's store.
void shrink(ncclComm& parent, const std::set<int>& excluded, ncclComm_t* out) {
  int rank = 0;
  for (int r = 0; r < parent.rank(); ++r) rank += excluded.count(r) == 0 ? 1 : 0;
  const int world = parent.size() - static_cast<int>(excluded.size());
  keep(out, std::make_unique<ncclComm>(join_part(parent.bootstrap(), rank, world, parent.timeout()),
                                       parent.device(), parent.timeout()));
}

// The parent's ranks get the id from the only one that has it.
void grow(ncclComm& parent, int world, const ncclUniqueId* id, ncclComm_t* out) {
  std::string found;
  for (const std::string& theirs : parent.bootstrap().all_gather(as_record(id)))
    if (!theirs.empty()) found = theirs;
  ncclUniqueId unique{};
  if (found.size() != sizeof unique.internal)
    throw Refusal(ncclInvalidUsage, "no rank of comm passed a uniqueId");
  std::memcpy(unique.internal, found.data(), found.size());
  keep(out, std::make_unique<ncclComm>(join(unique, parent.rank(), world, parent.timeout()),
                                       parent.device(), parent.timeout()));
}

// The emulator must behave like the GPU that NCCL programs expect: with a legacy default stream,
// and with more memory than the one or two GiB that nccl-tests reserves. The emulator's deadline
// must be longer than this library's.
#ifdef RINGSMITH_VGPU
[[maybe_unused]] const bool kPrepared = [] {
  vgpu::Settings::prefer("VGPU_LEGACY_STREAM", 1);
  vgpu::Settings::prefer("VGPU_MEMORY_MB", 4096);
  const long wait = kTimeoutText.empty() ? kDefaultTimeout : std::atol(kTimeoutText.c_str());
  vgpu::Settings::prefer("VGPU_DEADLINE_MS",
                         static_cast<std::uint64_t>(std::clamp(wait, 1L, kLongestWait)) + 30'000);
  return true;
}();
#endif

}  // namespace

}  // namespace ringsmith::nccl

using namespace ringsmith;
using namespace ringsmith::nccl;

// ---- the library ----

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclGetVersion(int* version) {
  return guarded("ncclGetVersion", [&] {
    check_pointer(version, "version");
    *version = NCCL_VERSION_CODE;
  });
}

RINGSMITH_NCCL_PUBLIC const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "a CUDA call failed";
    case ncclSystemError:
      return "a system call failed, or a wait exceeded its deadline";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "a peer has failed or exited";
    case ncclInProgress:
      return "in progress";
    default:
      return "unknown result code";
  }
}

RINGSMITH_NCCL_PUBLIC const char* ncclGetLastError(ncclComm_t comm) {
  thread_local std::string text;
  text = last_text();
  try {
    if (comm != nullptr)
      if (const auto failed = checked(comm).failure()) text = failed->what();
  } catch (...) {
    text = current_refusal().what();
  }
  return text.c_str();
}

// ---- communicators ----

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return guarded("ncclGetUniqueId", [&] {
    check_pointer(id, "id");
    *id = make_id();
  });
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId id,
                                                    int rank) {
  return init_rank("ncclCommInitRank", comm, nranks, id, rank, nullptr);
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks,
                                                          ncclUniqueId id, int rank,
                                                          ncclConfig_t* config) {
  return init_rank("ncclCommInitRankConfig", comm, nranks, id, rank, config);
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclCommInitAll(ncclComm_t* comms, int ndev,
                                                   const int* devices) {
  return guarded("ncclCommInitAll", [&] {
    check_pointer(comms, "comms");
    if (ndev < 1 || ndev > device_count())
      refuse("ndev is " + std::to_string(ndev) + ": give 1 to " + std::to_string(device_count()) +
             ", the devices of this process");
    const ncclUniqueId id = make_id();
    group_start();
    for (int i = 0; i < ndev; ++i) {
      const Device device = Device::cuda(devices == nullptr ? i : devices[i]);
      try {
        require_device(device);
        const DeviceGuard guard(device);
        (void)init_rank("ncclCommInitAll", comms + i, ndev, id, i, nullptr);
      } catch (...) {
        note_in_group({ncclInvalidArgument, current_refusal().what()});
      }
    }
    group_end();
  });
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key,
                                                 ncclComm_t* newcomm, ncclConfig_t* config) {
  return in_group("ncclCommSplit", [&] {
    ncclComm& parent = checked(comm);
    check_pointer(newcomm, "newcomm");
    *newcomm = nullptr;
    if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
      refuse("color is " + std::to_string(color) + ": give 0 or more, or NCCL_SPLIT_NOCOLOR");
    check_config(config);
    submit(parent.device(), [=, &parent] { split(parent, color, key, newcomm); });
  });
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclCommInitRankScalable(ncclComm_t* newcomm, int nranks,
                                                            int myrank, int nId,
                                                            ncclUniqueId* commIds,
                                                            ncclConfig_t* config) {
  if (nId < 1 || commIds == nullptr)
    return guarded("ncclCommInitRankScalable", [&] {
      refuse("nId is " + std::to_string(nId) + (commIds == nullptr ? " and commIds is NULL" : "") +
             ": give 1 or more ids");
    });
  return init_rank("ncclCommInitRankScalable", newcomm, nranks, *commIds, myrank, config);
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclCommShrink(ncclComm_t comm, int* excludeRanksList,
                                                  int excludeRanksCount, ncclComm_t* newcomm,
                                                  ncclConfig_t* config, int shrinkFlags) {
  return in_group("ncclCommShrink", [&] {
    ncclComm& parent = checked(comm);
    check_pointer(newcomm, "newcomm");
    *newcomm = nullptr;
    check_config(config);
    if (shrinkFlags != NCCL_SHRINK_DEFAULT && shrinkFlags != NCCL_SHRINK_ABORT)
      refuse("shrinkFlags is " + std::to_string(shrinkFlags) +
             ": give NCCL_SHRINK_DEFAULT or NCCL_SHRINK_ABORT");
    if (excludeRanksCount < 1 || excludeRanksCount >= parent.size())
      refuse("excludeRanksCount is " + std::to_string(excludeRanksCount) + ": give 1 to " +
             std::to_string(parent.size() - 1));
    check_pointer(excludeRanksList, "excludeRanksList");
    std::set<int> excluded;
    for (int i = 0; i < excludeRanksCount; ++i) {
      const int rank = excludeRanksList[i];
      check_rank(parent, rank, "excludeRanksList: rank");
      if (!excluded.insert(rank).second)
        refuse("excludeRanksList has rank " + std::to_string(rank) + " twice");
    }
    if (excluded.count(parent.rank()) != 0)
      refuse("excludeRanksList has rank " + std::to_string(parent.rank()) +
             ", the caller: only the remaining ranks call ncclCommShrink");
    if (shrinkFlags == NCCL_SHRINK_ABORT) parent.abort("ncclCommShrink with NCCL_SHRINK_ABORT");
    submit(parent.device(), [=, &parent] { shrink(parent, excluded, newcomm); });
  });
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* id) {
  return guarded("ncclCommGetUniqueId", [&] {
    (void)checked(comm);
    check_pointer(id, "id");
    *id = make_id();
  });
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks,
                                                const ncclUniqueId* uniqueId, int rank,
                                                ncclComm_t* newcomm, ncclConfig_t* config) {
  if (comm == nullptr) {  // this rank joins
    if (uniqueId == nullptr)
      return guarded("ncclCommGrow", [] { refuse("uniqueId is NULL, and so is comm"); });
    return init_rank("ncclCommGrow", newcomm, nRanks, *uniqueId, rank, config);
  }
  return in_group("ncclCommGrow", [&] {
    ncclComm& parent = checked(comm);
    check_pointer(newcomm, "newcomm");
    *newcomm = nullptr;
    check_config(config);
    if (rank != -1)
      refuse("rank is " + std::to_string(rank) + ": ranks of comm pass -1 and keep their number");
    if (nRanks <= parent.size() || nRanks > comm::cuda_ipc::kMostRanks)
      refuse("nRanks is " + std::to_string(nRanks) + ": give " + std::to_string(parent.size() + 1) +
             " to " + std::to_string(comm::cuda_ipc::kMostRanks));
    const ncclUniqueId id = uniqueId == nullptr ? ncclUniqueId{} : *uniqueId;
    submit(parent.device(), [=, &parent, has_id = uniqueId != nullptr] {
      grow(parent, nRanks, has_id ? &id : nullptr, newcomm);
    });
  });
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags) {
  return guarded("ncclCommRevoke", [&] {
    ncclComm& mine = checked(comm);
    if (revokeFlags != NCCL_REVOKE_DEFAULT)
      refuse("revokeFlags is " + std::to_string(revokeFlags) + ": give NCCL_REVOKE_DEFAULT");
    mine.abort("ncclCommRevoke");
  });
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return guarded("ncclCommFinalize", [&] { checked(comm).finish(); });
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return guarded("ncclCommDestroy", [&] {
    if (comm != nullptr) retire(&checked(comm));
  });
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return guarded("ncclCommAbort", [&] {
    if (comm == nullptr) return;
    ncclComm& mine = checked(comm);
    mine.abort("ncclCommAbort");
    retire(&mine);
  });
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return guarded("ncclCommGetAsyncError", [&] {
    check_pointer(error, "asyncError");
    *error = ncclSuccess;
    if (const auto failed = checked(comm).failure())
      *error = fail(failed->result(), failed->what());
  });
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  return guarded("ncclCommCount", [&] {
    check_pointer(count, "count");
    *count = checked(comm).size();
  });
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  return guarded("ncclCommCuDevice", [&] {
    check_pointer(device, "device");
    *device = checked(comm).device().index;
  });
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  return guarded("ncclCommUserRank", [&] {
    check_pointer(rank, "rank");
    *rank = checked(comm).rank();
  });
}
