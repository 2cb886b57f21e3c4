// The functions of nccl.h. Their errors name the rejected argument.
#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <set>

#include "kernels/cuda/launch.hpp"
#ifdef RINGSMITH_VGPU
#include "kernels/vgpu/settings.hpp"
#endif
#include "labs/nccl/group.hpp"
#include "labs/nccl/rendezvous.hpp"

#define RINGSMITH_NCCL_PUBLIC extern "C" __attribute__((visibility("default")))

namespace ringsmith::nccl {

namespace {

using comm::Collective;

[[noreturn]] void refuse(const std::string& text) { throw Refusal(ncclInvalidArgument, text); }

// Never destroyed, because a program may end without ncclCommDestroy.
struct Living {
  std::mutex mutex;
  std::set<ncclComm_t> all;
  // Communicators that the program has destroyed, but to whose memory peers may still write.
  std::list<std::unique_ptr<ncclComm>> closed;
};
Living& living() {
  static auto* const instance = new Living;
  return *instance;
}

ncclComm& checked(ncclComm_t comm) {
  if (comm == nullptr) refuse("comm is NULL");
  Living& l = living();
  const std::scoped_lock lock(l.mutex);
  if (l.all.count(comm) == 0)
    refuse("comm is not a communicator of this process, or was already destroyed");
  return *comm;
}

void check_pointer(const void* pointer, const char* name) {
  if (pointer == nullptr) refuse(std::string(name) + " is NULL");
}

void keep(ncclComm_t* out, std::unique_ptr<ncclComm> made) {
  Living& l = living();
  const std::scoped_lock lock(l.mutex);
  l.all.insert(made.get());
  *out = made.release();
}

// Closes the communicator immediately. Frees it, in this call or in a later one, when no peer can
// access its memory any more.
void retire(ncclComm_t comm) {
  Living& l = living();
  {
    const std::scoped_lock lock(l.mutex);
    l.all.erase(comm);
  }
  comm->close();
  std::list<std::unique_ptr<ncclComm>> forgotten;
  const std::scoped_lock lock(l.mutex);
  l.closed.emplace_back(comm);
  for (auto it = l.closed.begin(); it != l.closed.end();) {
    const auto next = std::next(it);
    if ((*it)->is_forgotten()) forgotten.splice(forgotten.end(), l.closed, it);
    it = next;
  }
}

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

// ---- arguments of calls ----

Element checked_type(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
      return {DType::u8, true};
    case ncclUint8:
    case ncclFloat8e4m3:  // only moved
    case ncclFloat8e5m2:
      return {DType::u8};
    case ncclInt32:
      return {DType::i32};
    case ncclUint32:
      return {DType::i32, true};
    case ncclInt64:
      return {DType::i64};
    case ncclUint64:
      return {DType::i64, true};
    case ncclFloat16:
      return {DType::f16};
    case ncclFloat32:
      return {DType::f32};
    case ncclFloat64:
      return {DType::f64};
    case ncclBfloat16:
      return {DType::bf16};
    default:
      refuse("datatype " + std::to_string(static_cast<int>(type)) + " is not an ncclDataType_t");
  }
}

// The type of a reduction.
Element checked_summand(ncclDataType_t type) {
  if (type == ncclFloat8e4m3 || type == ncclFloat8e5m2)
    refuse("8-bit floats (datatype " + std::to_string(static_cast<int>(type)) +
           ") can be moved, but not reduced: convert them to ncclFloat16 or ncclBfloat16");
  return checked_type(type);
}

// Numbers of a program's own reductions follow the built-in ones.
int own_number(ncclRedOp_t op) { return static_cast<int>(op) - static_cast<int>(ncclNumOps); }

void set_reduction(CollectiveCall& call, ncclRedOp_t op, ncclComm& comm, ncclDataType_t type) {
  (void)checked_summand(type);
  if (op >= ncclNumOps) {
    call.multiplier = comm.reduction(own_number(op));
    if (!call.multiplier)
      refuse("op " + std::to_string(static_cast<int>(op)) +
             " was not made by ncclRedOpCreatePreMulSum of this communicator, or was destroyed");
    const Element element = checked_type(type);
    if (call.multiplier->element != element)
      refuse("op " + std::to_string(static_cast<int>(op)) + " was made for another datatype than " +
             std::to_string(static_cast<int>(type)));
    return;
  }
  switch (op) {
    case ncclAvg:
      call.average = true;
      [[fallthrough]];
    case ncclSum:
      call.reduction = kernels::Reduction::sum;
      return;
    case ncclProd:
      call.reduction = kernels::Reduction::prod;
      return;
    case ncclMax:
      call.reduction = kernels::Reduction::max;
      return;
    case ncclMin:
      call.reduction = kernels::Reduction::min;
      return;
    default:
      refuse("op " + std::to_string(static_cast<int>(op)) +
             " is not ncclSum, ncclProd, ncclMax, ncclMin or ncclAvg");
  }
}

void check_rank(const ncclComm& comm, int rank, const char* name) {
  if (rank < 0 || rank >= comm.size())
    refuse(std::string(name) + " " + std::to_string(rank) +
           " is not a rank of this communicator of " + std::to_string(comm.size()));
}

void check_count(std::uint64_t count, const Element& element, int parts) {
  const std::uint64_t most = (std::uint64_t{1} << 46) / static_cast<std::uint64_t>(parts);
  if (count > most / size_of(element.dtype))
    refuse("count " + std::to_string(count) + " is more than a device holds");
}

// Rejects null, and memory that this rank's device cannot access.
template <class Pointer>
auto checked_buffer(const ncclComm& comm, Pointer* buffer, const char* name) {
  check_pointer(buffer, name);
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, buffer) != cudaSuccess) {
    (void)cudaGetLastError();
    attributes.type = cudaMemoryTypeUnregistered;
  }
  if (attributes.type == cudaMemoryTypeUnregistered)
    refuse(std::string(name) +
           " is neither device memory nor pinned host memory: allocate it by cudaMalloc");
  if (attributes.type == cudaMemoryTypeDevice && attributes.device != comm.device().index)
    refuse(std::string(name) + " is memory of device " + std::to_string(attributes.device) +
           ", but this rank is on device " + std::to_string(comm.device().index));
  if constexpr (std::is_const_v<Pointer>)
    return static_cast<const std::byte*>(buffer);
  else
    return static_cast<std::byte*>(buffer);
}

// If the call fails in a group, ncclGroupEnd reports the failure as well.
template <class Body>
ncclResult_t in_group(const char* call, Body&& body) noexcept {
  return guarded(call, [&] {
    try {
      body();
    } catch (...) {
      const Refusal refusal = current_refusal();
      note_in_group({refusal.result(), std::string(call) + ": " + refusal.what()});
      throw;
    }
  });
}

ncclResult_t collective(CollectiveCall call, ncclDataType_t type, const void* input, void* output,
                        ncclComm_t handle, cudaStream_t stream) {
  return in_group(call.name, [&] {
    ncclComm& comm = checked(handle);
    call.element = checked_type(type);
    check_rank(comm, call.root, "root");
    const bool parts =
        call.kind == Collective::all_gather || call.kind == Collective::reduce_scatter;
    check_count(call.count, call.element, parts ? comm.size() : 1);
    const bool sends = call.kind != Collective::broadcast || comm.rank() == call.root;
    const bool receives = call.kind != Collective::reduce || comm.rank() == call.root;
    if (call.count > 0 && sends) call.input = checked_buffer(comm, input, "sendbuff");
    if (call.count > 0 && receives) call.output = checked_buffer(comm, output, "recvbuff");
    submit({&comm, call, stream});
  });
}

ncclResult_t message(const char* name, const void* data, std::uint64_t count, ncclDataType_t type,
                     int peer, bool sends, ncclComm_t handle, cudaStream_t stream) {
  return in_group(name, [&] {
    ncclComm& comm = checked(handle);
    const Element element = checked_type(type);
    check_rank(comm, peer, "peer");
    check_count(count, element, 1);
    MessageCall call{{nullptr, count * size_of(element.dtype), peer, sends}, stream};
    if (count > 0)
      call.message.data =
          const_cast<std::byte*>(checked_buffer(comm, data, sends ? "sendbuff" : "recvbuff"));
    submit({&comm, call, stream});
  });
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

// ---- memory: all device memory is usable, so nothing needs to be registered ----

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclMemAlloc(void** pointer, size_t size) {
  return guarded("ncclMemAlloc", [&] {
    check_pointer(pointer, "ptr");
    cuda_check(cudaMalloc(pointer, size));
  });
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclMemFree(void* pointer) {
  return guarded("ncclMemFree", [&] { cuda_check(cudaFree(pointer)); });
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buffer,
                                                    size_t /*size*/, void** handle) {
  return guarded("ncclCommRegister", [&] {
    check_pointer(handle, "handle");
    (void)checked_buffer(checked(comm), buffer, "buff");
    *handle = buffer;
  });
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* /*handle*/) {
  return guarded("ncclCommDeregister", [&] { (void)checked(comm); });
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff,
                                                          size_t /*size*/, ncclWindow_t* win,
                                                          int winFlags) {
  return guarded("ncclCommWindowRegister", [&] {
    check_pointer(win, "win");
    *win = nullptr;
    if (winFlags != NCCL_WIN_DEFAULT && winFlags != NCCL_WIN_COLL_SYMMETRIC)
      refuse("winFlags is " + std::to_string(winFlags) +
             ": give NCCL_WIN_DEFAULT or NCCL_WIN_COLL_SYMMETRIC");
    (void)checked_buffer(checked(comm), buff, "buff");
    *win = static_cast<ncclWindow_t>(buff);
  });
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  return guarded("ncclCommWindowDeregister", [&] {
    (void)checked(comm);
    check_pointer(win, "win");
  });
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win,
                                                     void** outUserPtr) {
  return guarded("ncclWinGetUserPtr", [&] {
    check_pointer(outUserPtr, "outUserPtr");
    *outUserPtr = nullptr;
    (void)checked(comm);
    check_pointer(win, "win");
    *outUserPtr = win;
  });
}

// ---- signals ----

namespace {
ncclResult_t no_signals(const char* call, ncclComm_t comm) {
  return in_group(call, [&] {
    (void)checked(comm);
    refuse(
        "this library has no signals, because its ranks do not write to each other's windows: "
        "use ncclSend and ncclRecv");
  });
}
}  // namespace

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclPutSignal(const void* /*localbuff*/, size_t /*count*/,
                                                 ncclDataType_t /*datatype*/, int /*peer*/,
                                                 ncclWindow_t /*peerWin*/, size_t /*peerWinOffset*/,
                                                 int /*sigIdx*/, int /*ctx*/,
                                                 unsigned int /*flags*/, ncclComm_t comm,
                                                 cudaStream_t /*stream*/) {
  return no_signals("ncclPutSignal", comm);
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclSignal(int /*peer*/, int /*sigIdx*/, int /*ctx*/,
                                              unsigned int /*flags*/, ncclComm_t comm,
                                              cudaStream_t /*stream*/) {
  return no_signals("ncclSignal", comm);
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclWaitSignal(int /*nDesc*/,
                                                  ncclWaitSignalDesc_t* /*signalDescs*/,
                                                  ncclComm_t comm, cudaStream_t /*stream*/) {
  return no_signals("ncclWaitSignal", comm);
}

// ---- reductions of the program ----

namespace {

Multiplier multiplier_of(const Element& element, const void* scalar) {
  Multiplier multiplier{.element = element};
  visit_dtype(element.dtype, [&]<class T>(TypeTag<T>) {
    if constexpr (!std::is_same_v<T, bool>) {
      T x;
      std::memcpy(&x, scalar, sizeof x);
      if constexpr (std::is_integral_v<T>)  // signed or unsigned: the product wraps
        multiplier.factor.integer = static_cast<std::uint64_t>(x);
      else if constexpr (sizeof(T) == 2)
        multiplier.scale = static_cast<double>(static_cast<float>(x));
      else
        multiplier.scale = static_cast<double>(x);
    }
  });
  return multiplier;
}

}  // namespace

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar,
                                                            ncclDataType_t datatype,
                                                            ncclScalarResidence_t residence,
                                                            ncclComm_t comm) {
  return in_group("ncclRedOpCreatePreMulSum", [&] {
    ncclComm& mine = checked(comm);
    check_pointer(op, "op");
    const Element element = checked_summand(datatype);
    Multiplier multiplier{.element = element};
    if (residence == ncclScalarDevice) {
      multiplier.factor.scalar = checked_buffer(mine, static_cast<const void*>(scalar), "scalar");
    } else if (residence == ncclScalarHostImmediate) {
      check_pointer(scalar, "scalar");
      multiplier = multiplier_of(element, scalar);
    } else {
      refuse("residence is " + std::to_string(static_cast<int>(residence)) +
             ": give ncclScalarDevice or ncclScalarHostImmediate");
    }
    *op = static_cast<ncclRedOp_t>(static_cast<int>(ncclNumOps) + mine.add_reduction(multiplier));
  });
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return in_group("ncclRedOpDestroy", [&] {
    ncclComm& mine = checked(comm);
    if (!mine.remove_reduction(own_number(op)))
      refuse("op " + std::to_string(static_cast<int>(op)) +
             (op < ncclNumOps
                  ? " is built in"
                  : " was not made by ncclRedOpCreatePreMulSum of this communicator, or "
                    "was destroyed"));
  });
}

// ---- collectives ----

namespace {

CollectiveCall call_of(const char* name, Collective kind, size_t count, int root = 0) {
  CollectiveCall call{};
  call.name = name;
  call.kind = kind;
  call.count = count;
  call.root = root;
  return call;
}

ncclResult_t reduction(CollectiveCall call, ncclRedOp_t op, ncclDataType_t type, const void* input,
                       void* output, ncclComm_t comm, cudaStream_t stream) {
  const ncclResult_t result =
      in_group(call.name, [&] { set_reduction(call, op, checked(comm), type); });
  return result == ncclSuccess ? collective(call, type, input, output, comm, stream) : result;
}

}  // namespace

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                                 ncclDataType_t datatype, ncclRedOp_t op,
                                                 ncclComm_t comm, cudaStream_t stream) {
  return reduction(call_of("ncclAllReduce", Collective::all_reduce, count), op, datatype, sendbuff,
                   recvbuff, comm, stream);
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count,
                                              ncclDataType_t datatype, ncclRedOp_t op, int root,
                                              ncclComm_t comm, cudaStream_t stream) {
  return reduction(call_of("ncclReduce", Collective::reduce, count, root), op, datatype, sendbuff,
                   recvbuff, comm, stream);
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                                 ncclDataType_t datatype, int root, ncclComm_t comm,
                                                 cudaStream_t stream) {
  return collective(call_of("ncclBroadcast", Collective::broadcast, count, root), datatype,
                    sendbuff, recvbuff, comm, stream);
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype,
                                             int root, ncclComm_t comm, cudaStream_t stream) {
  return collective(call_of("ncclBcast", Collective::broadcast, count, root), datatype, buff, buff,
                    comm, stream);
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff,
                                                 size_t sendcount, ncclDataType_t datatype,
                                                 ncclComm_t comm, cudaStream_t stream) {
  return collective(call_of("ncclAllGather", Collective::all_gather, sendcount), datatype, sendbuff,
                    recvbuff, comm, stream);
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff,
                                                     size_t recvcount, ncclDataType_t datatype,
                                                     ncclRedOp_t op, ncclComm_t comm,
                                                     cudaStream_t stream) {
  return reduction(call_of("ncclReduceScatter", Collective::reduce_scatter, recvcount), op,
                   datatype, sendbuff, recvbuff, comm, stream);
}

// ---- collectives that are groups of messages ----

namespace {

// Rank p's part of a buffer of one part for each rank.
const std::byte* part_of(const void* buffer, int p, std::uint64_t bytes) {
  return buffer == nullptr
             ? nullptr
             : static_cast<const std::byte*>(buffer) + static_cast<std::size_t>(p) * bytes;
}

// messages(comm, bytes of a part) makes the calls of message(). Their errors are the group's.
template <class Messages>
ncclResult_t message_group(const char* name, size_t count, ncclDataType_t type, int root,
                           ncclComm_t handle, Messages messages) {
  return in_group(name, [&] {
    const ncclComm& comm = checked(handle);
    check_rank(comm, root, "root");
    const Element element = checked_type(type);
    check_count(count, element, comm.size());
    group_start();
    messages(comm, count * size_of(element.dtype));
    group_end();
  });
}

}  // namespace

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                                                ncclDataType_t datatype, ncclComm_t comm,
                                                cudaStream_t stream) {
  const char* const name = "ncclAlltoAll";
  if (count > 0 && sendbuff == recvbuff)
    return in_group(name, [] { refuse("sendbuff and recvbuff are the same: give two buffers"); });
  return message_group(name, count, datatype, 0, comm, [&](const ncclComm& c, std::uint64_t bytes) {
    for (int p = 0; p < c.size(); ++p) {
      (void)message(name, part_of(sendbuff, p, bytes), count, datatype, p, true, comm, stream);
      (void)message(name, part_of(recvbuff, p, bytes), count, datatype, p, false, comm, stream);
    }
  });
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count,
                                              ncclDataType_t datatype, int root, ncclComm_t comm,
                                              cudaStream_t stream) {
  const char* const name = "ncclGather";
  return message_group(
      name, count, datatype, root, comm, [&](const ncclComm& c, std::uint64_t bytes) {
        (void)message(name, sendbuff, count, datatype, root, true, comm, stream);
        for (int p = 0; c.rank() == root && p < c.size(); ++p)
          (void)message(name, part_of(recvbuff, p, bytes), count, datatype, p, false, comm, stream);
      });
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count,
                                               ncclDataType_t datatype, int root, ncclComm_t comm,
                                               cudaStream_t stream) {
  const char* const name = "ncclScatter";
  return message_group(
      name, count, datatype, root, comm, [&](const ncclComm& c, std::uint64_t bytes) {
        for (int p = 0; c.rank() == root && p < c.size(); ++p)
          (void)message(name, part_of(sendbuff, p, bytes), count, datatype, p, true, comm, stream);
        (void)message(name, recvbuff, count, datatype, root, false, comm, stream);
      });
}

// ---- between two ranks ----

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclSend(const void* sendbuff, size_t count,
                                            ncclDataType_t datatype, int peer, ncclComm_t comm,
                                            cudaStream_t stream) {
  return message("ncclSend", sendbuff, count, datatype, peer, true, comm, stream);
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype,
                                            int peer, ncclComm_t comm, cudaStream_t stream) {
  return message("ncclRecv", recvbuff, count, datatype, peer, false, comm, stream);
}

// ---- groups ----

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclGroupStart() {
  return guarded("ncclGroupStart", [] { group_start(); });
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclGroupEnd() {
  return guarded("ncclGroupEnd", [] { group_end(); });
}

RINGSMITH_NCCL_PUBLIC ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* /*simInfo*/) {
  return guarded("ncclGroupSimulateEnd", [] {
    group_drop();
    throw Refusal(ncclInvalidUsage,
                  "this library cannot estimate a group's time: the calls were dropped; end the "
                  "group with ncclGroupEnd to run them");
  });
}
