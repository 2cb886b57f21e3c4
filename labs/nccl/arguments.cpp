#include "labs/nccl/arguments.hpp"

#include <list>
#include <mutex>
#include <set>

namespace ringsmith::nccl {

namespace {

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

}  // namespace

void refuse(const std::string& text) { throw Refusal(ncclInvalidArgument, text); }

ncclComm& checked(ncclComm_t comm) {
  if (comm == nullptr) refuse("comm is NULL");
  Living& l = living();
  const std::scoped_lock lock(l.mutex);
  if (l.all.count(comm) == 0)
    refuse("comm is not a communicator of this process, or was already destroyed");
  return *comm;
}

void keep(ncclComm_t* out, std::unique_ptr<ncclComm> made) {
  Living& l = living();
  const std::scoped_lock lock(l.mutex);
  l.all.insert(made.get());
  *out = made.release();
}

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

void check_pointer(const void* pointer, const char* name) {
  if (pointer == nullptr) refuse(std::string(name) + " is NULL");
}

void check_rank(const ncclComm& comm, int rank, const char* name) {
  if (rank < 0 || rank >= comm.size())
    refuse(std::string(name) + " " + std::to_string(rank) +
           " is not a rank of this communicator of " + std::to_string(comm.size()));
}

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

void check_buffer(const ncclComm& comm, const void* buffer, const char* name) {
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
}

}  // namespace ringsmith::nccl
