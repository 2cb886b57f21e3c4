// What a failed completion means: libibverbs' status, and what to look at.
#pragma once

#include <infiniband/verbs.h>
#include <string>

namespace ringsmith::comm::rdma {

// "RDMA write failed: transport retry counter exceeded (12); check ..."
[[nodiscard]] std::string explain(const ibv_wc& completion);

}  // namespace ringsmith::comm::rdma
