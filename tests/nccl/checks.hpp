// Shared by the client's files: a rank's resources, and checks that end the program.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "labs/nccl/nccl.h"

namespace client {

#define CUDA(call)                                                                         \
  do {                                                                                     \
    const cudaError_t cuda_code = (call);                                                  \
    if (cuda_code != cudaSuccess) give_up(#call, cudaGetErrorString(cuda_code), __LINE__); \
  } while (0)
#define NCCL(call)                                                                               \
  do {                                                                                           \
    const ncclResult_t nccl_code = (call);                                                       \
    if (nccl_code != ncclSuccess)                                                                \
      give_up(#call, std::string(ncclGetErrorString(nccl_code)) + ": " + ncclGetLastError(NULL), \
              __LINE__);                                                                         \
  } while (0)

[[noreturn]] inline void give_up(const char* call, const std::string& why, int line) {
  std::fprintf(stderr, "nccl_client: line %d: %s: %s\n", line, call, why.c_str());
  std::exit(1);
}

constexpr int kStreams = 3;  // cases in flight, each on its own stream

struct Rank {
  int device = 0, rank = 0;
  ncclComm_t comm = NULL;
  // A second communicator of the same ranks, for ncclGroups with calls on both.
  ncclComm_t second = NULL;
  cudaStream_t streams[kStreams] = {};
  unsigned char *send[kStreams] = {}, *receive[kStreams] = {}, *want = NULL;
  void* factor[kStreams] = {};  // of a premulsum whose scalar is stored on the device
};

}  // namespace client
