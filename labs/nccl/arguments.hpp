// Checks of the arguments of nccl.h's functions, and the communicators of this process. Errors name
// the rejected argument.
#pragma once

#include <memory>
#include <string>
#include <type_traits>

#include "kernels/cuda/launch.hpp"
#include "labs/nccl/group.hpp"

#define RINGSMITH_NCCL_PUBLIC extern "C" __attribute__((visibility("default")))

namespace ringsmith::nccl {

[[noreturn]] void refuse(const std::string& text);  // ncclInvalidArgument

// ---- communicators of this process ----
// Returns the communicator; refuses one that is null, destroyed, or was never made here.
ncclComm& checked(ncclComm_t comm);
void keep(ncclComm_t* out, std::unique_ptr<ncclComm> made);
// Closes the communicator immediately. Frees it, in this call or in a later one, when no peer can
// access its memory any more.
void retire(ncclComm_t comm);

// ---- arguments ----
void check_pointer(const void* pointer, const char* name);
void check_rank(const ncclComm& comm, int rank, const char* name);
[[nodiscard]] Element checked_type(ncclDataType_t type);
// Rejects null, and memory that this rank's device cannot access.
void check_buffer(const ncclComm& comm, const void* buffer, const char* name);

template <class Pointer>
auto checked_buffer(const ncclComm& comm, Pointer* buffer, const char* name) {
  check_buffer(comm, buffer, name);
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

}  // namespace ringsmith::nccl
