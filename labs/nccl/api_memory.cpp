// nccl.h's functions for memory. All device memory is usable, so nothing needs to be registered.
// Signals between windows are refused.
#include "labs/nccl/arguments.hpp"

using namespace ringsmith;
using namespace ringsmith::nccl;

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
