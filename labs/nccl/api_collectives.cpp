// nccl.h's functions that move data: reductions, collectives, messages between two ranks, groups.
#include <cstring>

#include "labs/nccl/arguments.hpp"

namespace ringsmith::nccl {

namespace {

using comm::Collective;

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

void check_count(std::uint64_t count, const Element& element, int parts) {
  const std::uint64_t most = (std::uint64_t{1} << 46) / static_cast<std::uint64_t>(parts);
  if (count > most / size_of(element.dtype))
    refuse("count " + std::to_string(count) + " is more than a device holds");
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

}  // namespace

}  // namespace ringsmith::nccl

using namespace ringsmith;
using namespace ringsmith::nccl;

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
