// Calls that the library must refuse, each with its result and words of its message.
#pragma once

#include <cstring>

#include "tests/nccl/checks.hpp"

namespace client {

inline int refusals(const Rank& r) {
  int bad = 0;
  const auto expect = [&](ncclResult_t got, ncclResult_t want, const char* words) {
    const std::string text = ncclGetLastError(NULL);
    if (got == want && text.find(words) != std::string::npos) return;
    std::fprintf(stderr, "nccl_client: expected result %d and '%s', got %d and '%s'\n", want, words,
                 got, text.c_str());
    ++bad;
  };
  CUDA(cudaSetDevice(r.device));
  void* const x = r.send[0];
  const cudaStream_t stream = r.streams[0];
  float host = 0;
  expect(ncclAllReduce(NULL, x, 1, ncclFloat, ncclSum, r.comm, stream), ncclInvalidArgument,
         "sendbuff is NULL");
  expect(ncclAllReduce(x, NULL, 1, ncclFloat, ncclSum, r.comm, stream), ncclInvalidArgument,
         "recvbuff is NULL");
  expect(ncclAllReduce(&host, x, 1, ncclFloat, ncclSum, r.comm, stream), ncclInvalidArgument,
         "sendbuff is neither");
  expect(ncclAllReduce(x, x, 1, static_cast<ncclDataType_t>(99), ncclSum, r.comm, stream),
         ncclInvalidArgument, "datatype 99");
  expect(ncclAllReduce(x, x, 1, ncclFloat, static_cast<ncclRedOp_t>(9), r.comm, stream),
         ncclInvalidArgument, "op 9 was not made");
  expect(ncclAllReduce(x, x, 1, ncclFloat, static_cast<ncclRedOp_t>(-1), r.comm, stream),
         ncclInvalidArgument, "op -1");
  expect(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, NULL, stream), ncclInvalidArgument,
         "comm is NULL");
  expect(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, reinterpret_cast<ncclComm_t>(&host), stream),
         ncclInvalidArgument, "comm is not a communicator");
  expect(ncclReduce(x, x, 1, ncclFloat, ncclSum, 99, r.comm, stream), ncclInvalidArgument,
         "root 99");
  expect(ncclBroadcast(x, x, 1, ncclFloat, -1, r.comm, stream), ncclInvalidArgument, "root -1");
  expect(ncclSend(x, 1, ncclFloat, 99, r.comm, stream), ncclInvalidArgument, "peer 99");
  expect(ncclSend(x, 1, ncclFloat, r.rank, r.comm, stream), ncclInvalidUsage, "itself");
  expect(ncclGroupEnd(), ncclInvalidUsage, "ncclGroupStart");
  expect(ncclGetVersion(NULL), ncclInvalidArgument, "version is NULL");
  ncclRedOp_t op = ncclSum;
  expect(ncclRedOpCreatePreMulSum(NULL, &host, ncclFloat, ncclScalarHostImmediate, r.comm),
         ncclInvalidArgument, "op is NULL");
  expect(ncclRedOpCreatePreMulSum(&op, NULL, ncclFloat, ncclScalarHostImmediate, r.comm),
         ncclInvalidArgument, "scalar is NULL");
  expect(ncclRedOpCreatePreMulSum(&op, &host, ncclFloat, ncclScalarDevice, r.comm),
         ncclInvalidArgument, "scalar is neither");
  expect(ncclRedOpCreatePreMulSum(&op, x, ncclFloat, static_cast<ncclScalarResidence_t>(7), r.comm),
         ncclInvalidArgument, "residence is 7");
  expect(ncclRedOpDestroy(ncclSum, r.comm), ncclInvalidArgument, "built in");
  NCCL(ncclRedOpCreatePreMulSum(&op, &host, ncclFloat, ncclScalarHostImmediate, r.comm));
  expect(ncclAllReduce(x, x, 1, ncclInt32, op, r.comm, stream), ncclInvalidArgument,
         "was made for another datatype");
  expect(ncclAllReduce(x, x, 1, ncclFloat, op, r.second, stream), ncclInvalidArgument,
         "of this communicator");
  NCCL(ncclRedOpDestroy(op, r.comm));
  expect(ncclAllReduce(x, x, 1, ncclFloat, op, r.comm, stream), ncclInvalidArgument,
         "was destroyed");
  expect(ncclRedOpDestroy(op, r.comm), ncclInvalidArgument, "was destroyed");
  ncclUniqueId id = {};
  ncclComm_t comm = NULL;
  expect(ncclCommInitRank(&comm, 1, id, 0), ncclInvalidArgument, "id was not made");
  expect(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument, "nranks is 0");
  expect(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument, "rank is 2");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.magic = 1;
  expect(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument,
         "NCCL_CONFIG_INITIALIZER");
  expect(ncclCommSplit(r.comm, -3, 0, &comm, NULL), ncclInvalidArgument, "color is -3");
  const int twice[] = {0, 0};
  ncclComm_t comms[2] = {};
  expect(ncclCommInitAll(comms, 2, twice), ncclInvalidUsage, "share a device");
  expect(ncclCommInitAll(comms, 1000, NULL), ncclInvalidArgument, "ndev is 1000");
  NCCL(ncclGroupStart());  // the group's end reports a call that was refused within it
  expect(ncclBcast(x, 1, ncclFloat, 77, r.comm, stream), ncclInvalidArgument, "root 77");
  expect(ncclGroupEnd(), ncclInvalidArgument, "root 77");
  NCCL(ncclGroupStart());
  NCCL(ncclBcast(x, 1, ncclFloat, 0, r.comm, stream));
  expect(ncclGroupSimulateEnd(NULL), ncclInvalidUsage, "were dropped");
  expect(ncclAlltoAll(x, x, 1, ncclFloat, r.comm, stream), ncclInvalidArgument, "are the same");
  expect(ncclGather(x, x, 1, ncclFloat, 99, r.comm, stream), ncclInvalidArgument, "root 99");
  expect(ncclScatter(x, NULL, 1, ncclFloat, r.rank, r.comm, stream), ncclInvalidArgument,
         "recvbuff is NULL");
  expect(ncclAlltoAll(x, r.receive[0], std::size_t{1} << 60, ncclFloat, r.comm, stream),
         ncclInvalidArgument, "more than a device holds");
  expect(ncclCommInitRankScalable(&comm, 1, 0, 0, &id, NULL), ncclInvalidArgument, "nId is 0");
  int listed[] = {r.rank, 0, 0};
  expect(ncclCommShrink(r.comm, listed, 0, &comm, NULL, NCCL_SHRINK_DEFAULT), ncclInvalidArgument,
         "excludeRanksCount is 0");
  expect(ncclCommShrink(r.comm, listed, 1, &comm, NULL, 7), ncclInvalidArgument,
         "shrinkFlags is 7");
  int members = 0;
  NCCL(ncclCommCount(r.comm, &members));
  if (members > 1)
    expect(ncclCommShrink(r.comm, listed, 1, &comm, NULL, NCCL_SHRINK_DEFAULT), ncclInvalidArgument,
           "the caller");
  if (members > 2)
    expect(ncclCommShrink(r.comm, listed + 1, 2, &comm, NULL, NCCL_SHRINK_DEFAULT),
           ncclInvalidArgument, "twice");
  expect(ncclCommGrow(r.comm, members, NULL, -1, &comm, NULL), ncclInvalidArgument, "nRanks is");
  expect(ncclCommGrow(r.comm, members + 1, NULL, 0, &comm, NULL), ncclInvalidArgument, "rank is 0");
  expect(ncclCommGrow(NULL, 2, NULL, 1, &comm, NULL), ncclInvalidArgument, "uniqueId is NULL");
  expect(ncclCommRevoke(r.comm, 3), ncclInvalidArgument, "revokeFlags is 3");
  ncclWindow_t window = NULL;
  expect(ncclCommWindowRegister(r.comm, &host, 4, &window, NCCL_WIN_DEFAULT), ncclInvalidArgument,
         "buff is neither");
  expect(ncclCommWindowRegister(r.comm, x, 4, &window, 9), ncclInvalidArgument, "winFlags is 9");
  NCCL(ncclCommWindowRegister(r.comm, x, 4, &window, NCCL_WIN_COLL_SYMMETRIC));
  void* user = NULL;
  NCCL(ncclWinGetUserPtr(r.comm, window, &user));
  bad += user == x ? 0 : 1;
  expect(ncclPutSignal(x, 1, ncclFloat, 0, window, 0, 0, 0, 0, r.comm, stream), ncclInvalidArgument,
         "no signals");
  ncclWaitSignalDesc_t signal = {1, 0, 0, 0};
  expect(ncclWaitSignal(1, &signal, r.comm, stream), ncclInvalidArgument, "no signals");
  expect(ncclSignal(0, 0, 0, 0, r.comm, stream), ncclInvalidArgument, "no signals");
  NCCL(ncclCommWindowDeregister(r.comm, window));
  expect(ncclAllReduce(x, x, 1, ncclFloat8e4m3, ncclSum, r.comm, stream), ncclInvalidArgument,
         "8-bit floats");
  expect(ncclRedOpCreatePreMulSum(&op, x, ncclFloat8e5m2, ncclScalarHostImmediate, r.comm),
         ncclInvalidArgument, "8-bit floats");
  // 8-bit floats can be moved.
  unsigned char sent[16], received[16] = {};
  for (int i = 0; i < 16; ++i) sent[i] = static_cast<unsigned char>(37 * i + 1);
  CUDA(cudaMemcpyAsync(x, sent, sizeof sent, cudaMemcpyHostToDevice, stream));
  NCCL(ncclGroupStart());
  NCCL(ncclSend(x, 16, ncclFloat8e4m3, r.rank, r.comm, stream));
  NCCL(ncclRecv(r.receive[0], 16, ncclFloat8e4m3, r.rank, r.comm, stream));
  NCCL(ncclGroupEnd());
  CUDA(cudaMemcpyAsync(received, r.receive[0], sizeof sent, cudaMemcpyDeviceToHost, stream));
  CUDA(cudaStreamSynchronize(stream));
  bad += std::memcmp(sent, received, sizeof sent) == 0 ? 0 : 1;
  void* memory = NULL;
  void* handle = NULL;
  NCCL(ncclMemAlloc(&memory, 1024));
  NCCL(ncclCommRegister(r.comm, memory, 1024, &handle));
  NCCL(ncclCommDeregister(r.comm, handle));
  NCCL(ncclMemFree(memory));
  int version = 0;
  NCCL(ncclGetVersion(&version));
  if (version != NCCL_VERSION_CODE || sizeof(ncclUniqueId) != 128) ++bad;
  return bad;
}

}  // namespace client
