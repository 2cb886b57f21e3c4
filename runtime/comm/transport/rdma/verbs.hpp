// libibverbs' objects, which free themselves. An object must go before those that it was made from.
#pragma once

#include <cerrno>
#include <cstring>
#include <infiniband/verbs.h>
#include <memory>
#include <string>

#include "runtime/base/error.hpp"

namespace ringsmith::comm::rdma {

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* object) const {
    destroy(object);
  }
};

using Context = std::unique_ptr<ibv_context, Destroy<ibv_close_device>>;
using ProtectionDomain = std::unique_ptr<ibv_pd, Destroy<ibv_dealloc_pd>>;
using CompletionChannel = std::unique_ptr<ibv_comp_channel, Destroy<ibv_destroy_comp_channel>>;
using CompletionQueue = std::unique_ptr<ibv_cq, Destroy<ibv_destroy_cq>>;
using QueuePair = std::unique_ptr<ibv_qp, Destroy<ibv_destroy_qp>>;
using MemoryRegion = std::unique_ptr<ibv_mr, Destroy<ibv_dereg_mr>>;

[[noreturn]] inline void fail(const std::string& what, int error = errno) {
  throw CommError("rdma: " + what + ": " + std::strerror(error));
}

}  // namespace ringsmith::comm::rdma
