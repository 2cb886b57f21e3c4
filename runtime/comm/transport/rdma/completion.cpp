#include "runtime/comm/transport/rdma/completion.hpp"

namespace ringsmith::comm::rdma {

namespace {

const char* what_to_check(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return "the peer's device does not answer: check that its process and host live, that the "
             "GIDs reach each other (RINGSMITH_GID_INDEX), and UDP port 4791 for RoCE";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "the peer has posted no receive requests: it stands still, or is of another version";
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
      return "the peer's device refused the address or the key: its memory there has been "
             "deregistered, or it is of another version";
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_LEN_ERR:
      return "our own bytes are outside of registered memory: a defect of ringsmith";
    case IBV_WC_WR_FLUSH_ERR:
      return "it was dropped because the connection had failed before, here or at the peer";
    default:
      return "see the kernel's log for the device";
  }
}

const char* name_of(ibv_wc_opcode opcode) {
  return opcode == IBV_WC_RECV_RDMA_WITH_IMM || opcode == IBV_WC_RECV ? "receive" : "RDMA write";
}

}  // namespace

std::string explain(const ibv_wc& completion) {
  return std::string(name_of(completion.opcode)) +
         " failed: " + ibv_wc_status_str(completion.status) + " (status " +
         std::to_string(completion.status) + "); " + what_to_check(completion.status);
}

}  // namespace ringsmith::comm::rdma
