/* The public interface of NCCL, as far as libringsmith_nccl.so has it: the functions that nccl-tests
 * and PyTorch call, of versions 2.9 to 2.20. Names, numbers and layouts are those of the interface;
 * README.md says what is done, what is refused, and how a program is built against this header.
 *
 * For C and C++. It includes the CUDA headers of whoever compiles: the toolkit's, or the emulator's
 * (kernels/vgpu/include).
 */
#ifndef RINGSMITH_NCCL_H
#define RINGSMITH_NCCL_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <limits.h>
#include <stddef.h>

#define NCCL_MAJOR 2
#define NCCL_MINOR 20
#define NCCL_PATCH 5
#define NCCL_SUFFIX ""
/* From 2.9 on two digits each; 2.8 and earlier had one for the minor number. */
#define NCCL_VERSION(major, minor, patch)                                \
  (((major) <= 2 && (minor) <= 8) ? (major)*1000 + (minor)*100 + (patch) \
                                  : (major)*10000 + (minor)*100 + (patch))
#define NCCL_VERSION_CODE 22005

#define NCCL_UNIQUE_ID_BYTES 128
#define NCCL_COMM_NULL NULL
#define NCCL_SPLIT_NOCOLOR (-1)
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ncclComm* ncclComm_t; /* one rank of a communicator */

typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
  ncclNumResults = 8
} ncclResult_t;

/* Element types; several names for some. */
typedef enum {
  ncclInt8 = 0,
  ncclChar = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclHalf = 6,
  ncclFloat32 = 7,
  ncclFloat = 7,
  ncclFloat64 = 8,
  ncclDouble = 8,
  ncclBfloat16 = 9,
  ncclNumTypes = 10
} ncclDataType_t;

/* Reductions: those with a number, then those that a program makes (up to ncclMaxRedOp). */
typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;
typedef enum {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5,
  ncclMaxRedOp = 0x7fffffff >> (32 - 8 * sizeof(ncclRedOp_dummy_t))
} ncclRedOp_t;

typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

/* Begin with NCCL_CONFIG_INITIALIZER. Of the fields only `blocking` is looked at. */
typedef struct ncclConfig_v21700 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
} ncclConfig_t;

#define NCCL_CONFIG_INITIALIZER                                                 \
  {                                                                             \
    sizeof(ncclConfig_t), 0xcafebeef, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_INT, \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,    \
        (const char*)NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT               \
  }

/* ---- the library ---- */

ncclResult_t ncclGetVersion(int* version); /* NCCL_VERSION_CODE */
const char* ncclGetErrorString(ncclResult_t result);
/* What was wrong with the last call that failed on this thread, in a sentence that names the
 * argument; or, if comm has failed on the way, what happened to it. "" if nothing did. */
const char* ncclGetLastError(ncclComm_t comm);

/* ---- communicators ---- */

/* On one process, which then gives it to all ranks by any channel. */
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
/* Collective. The rank is on the calling thread's current device. One thread that makes several
 * ranks does so between ncclGroupStart and ncclGroupEnd. */
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config);
/* All ranks in this process; rank i is on devices[i], or on device i where devices is NULL. */
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int ndev, const int* devices);
/* Collective over comm. Ranks of one color make a communicator, in the order of their keys. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                           ncclConfig_t* config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error);
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count);
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank);

/* ---- memory ---- */

ncclResult_t ncclMemAlloc(void** pointer, size_t size);
ncclResult_t ncclMemFree(void* pointer);
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buffer, size_t size, void** handle);
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle);

/* ---- reductions of one's own ----
 * The sum of every rank's data, multiplied by that rank's scalar first. A scalar on the device is
 * read when the collective runs there; one on the host is taken now. The reduction may be destroyed
 * as soon as the calls that use it were made, also within their group. */

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm);
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);

/* ---- collectives ----
 * They return at once and run in the order of the stream. Counts are of elements; in place where
 * both buffers are the same memory (of gather and scatter: this rank's part of it). */

ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream);
ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream);

/* ---- between two ranks ---- */

ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream);

/* ---- groups: the calls between them begin together at the end of the outermost one ---- */

ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

#ifdef __cplusplus
}
#endif

#endif
