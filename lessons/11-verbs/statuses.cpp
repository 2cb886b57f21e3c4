// statuses: the runtime's messages for failed completions.
#include <cstdio>

#include "runtime/comm/transport/rdma/verbs.hpp"

int main() {
  for (const ibv_wc_status status : {IBV_WC_REM_ACCESS_ERR, IBV_WC_RNR_RETRY_EXC_ERR,
                                     IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR}) {
    ibv_wc completion{};
    completion.status = status;
    std::printf("%s\n", ringsmith::comm::rdma::explain(completion).c_str());
  }
}
