// The part of libibverbs that a first RDMA program needs. Names, fields and values are the same as
// in the real <infiniband/verbs.h>, so the same source compiles against either. Instead of an
// adapter it uses the simulated device of ../device.hpp, which checks every call.
//
// Features that no lab uses are missing (SRQ, UD, atomics, windows, events). libibverbs' man pages
// apply.
#pragma once

#include <cstddef>
#include <cstdint>

enum ibv_qp_state {
  IBV_QPS_RESET,
  IBV_QPS_INIT,
  IBV_QPS_RTR,
  IBV_QPS_RTS,
  IBV_QPS_SQD,
  IBV_QPS_SQE,
  IBV_QPS_ERR
};
enum ibv_qp_type { IBV_QPT_RC = 2, IBV_QPT_UC, IBV_QPT_UD };
enum ibv_mtu { IBV_MTU_256 = 1, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096 };
enum ibv_port_state { IBV_PORT_NOP, IBV_PORT_DOWN, IBV_PORT_INIT, IBV_PORT_ARMED, IBV_PORT_ACTIVE };
enum { IBV_LINK_LAYER_UNSPECIFIED, IBV_LINK_LAYER_INFINIBAND, IBV_LINK_LAYER_ETHERNET };
enum ibv_access_flags {
  IBV_ACCESS_LOCAL_WRITE = 1,
  IBV_ACCESS_REMOTE_WRITE = 1 << 1,
  IBV_ACCESS_REMOTE_READ = 1 << 2
};
enum ibv_qp_attr_mask {
  IBV_QP_STATE = 1 << 0,
  IBV_QP_ACCESS_FLAGS = 1 << 3,
  IBV_QP_PKEY_INDEX = 1 << 4,
  IBV_QP_PORT = 1 << 5,
  IBV_QP_AV = 1 << 7,
  IBV_QP_PATH_MTU = 1 << 8,
  IBV_QP_TIMEOUT = 1 << 9,
  IBV_QP_RETRY_CNT = 1 << 10,
  IBV_QP_RNR_RETRY = 1 << 11,
  IBV_QP_RQ_PSN = 1 << 12,
  IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13,
  IBV_QP_MIN_RNR_TIMER = 1 << 15,
  IBV_QP_SQ_PSN = 1 << 16,
  IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17,
  IBV_QP_DEST_QPN = 1 << 20
};
enum ibv_wr_opcode {
  IBV_WR_RDMA_WRITE,
  IBV_WR_RDMA_WRITE_WITH_IMM,
  IBV_WR_SEND,
  IBV_WR_SEND_WITH_IMM
};
enum ibv_send_flags { IBV_SEND_SIGNALED = 1 << 1, IBV_SEND_INLINE = 1 << 3 };
enum ibv_wc_status {
  IBV_WC_SUCCESS = 0,
  IBV_WC_LOC_LEN_ERR = 1,
  IBV_WC_LOC_PROT_ERR = 4,
  IBV_WC_WR_FLUSH_ERR = 5,
  IBV_WC_REM_INV_REQ_ERR = 9,
  IBV_WC_REM_ACCESS_ERR = 10,
  IBV_WC_RETRY_EXC_ERR = 12,
  IBV_WC_RNR_RETRY_EXC_ERR = 13
};
enum ibv_wc_opcode {
  IBV_WC_SEND = 0,
  IBV_WC_RDMA_WRITE = 1,
  IBV_WC_RECV = 1 << 7,
  IBV_WC_RECV_RDMA_WITH_IMM
};
enum ibv_wc_flags { IBV_WC_WITH_IMM = 1 << 1 };

union ibv_gid {
  std::uint8_t raw[16];
};
struct ibv_device {
  char name[64];
};
struct ibv_context {
  ibv_device* device;
};
struct ibv_pd {
  ibv_context* context;
};
struct ibv_mr {
  ibv_context* context;
  ibv_pd* pd;
  void* addr;
  std::size_t length;
  std::uint32_t lkey, rkey;
};
struct ibv_cq {
  ibv_context* context;
  void* cq_context;
  int cqe;
};
struct ibv_comp_channel;
struct ibv_srq;
struct ibv_qp {
  ibv_context* context;
  void* qp_context;
  ibv_pd* pd;
  ibv_cq *send_cq, *recv_cq;
  std::uint32_t qp_num;
  ibv_qp_state state;
  ibv_qp_type qp_type;
};
struct ibv_port_attr {
  ibv_port_state state;
  ibv_mtu max_mtu, active_mtu;
  std::uint16_t lid;
  std::uint8_t link_layer;
};
struct ibv_qp_cap {
  std::uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
};
struct ibv_qp_init_attr {
  void* qp_context;
  ibv_cq *send_cq, *recv_cq;
  ibv_srq* srq;
  ibv_qp_cap cap;
  ibv_qp_type qp_type;
  int sq_sig_all;
};
struct ibv_global_route {
  ibv_gid dgid;
  std::uint32_t flow_label;
  std::uint8_t sgid_index, hop_limit, traffic_class;
};
struct ibv_ah_attr {
  ibv_global_route grh;
  std::uint16_t dlid;
  std::uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};
struct ibv_qp_attr {
  ibv_qp_state qp_state;
  ibv_mtu path_mtu;
  std::uint32_t rq_psn, sq_psn, dest_qp_num;
  unsigned int qp_access_flags;
  ibv_ah_attr ah_attr;
  std::uint16_t pkey_index;
  std::uint8_t max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt,
      rnr_retry;
};
struct ibv_sge {
  std::uint64_t addr;
  std::uint32_t length, lkey;
};
struct ibv_send_wr {
  std::uint64_t wr_id;
  ibv_send_wr* next;
  ibv_sge* sg_list;
  int num_sge;
  ibv_wr_opcode opcode;
  unsigned int send_flags;
  std::uint32_t imm_data;  // network byte order
  union {
    struct {
      std::uint64_t remote_addr;
      std::uint32_t rkey;
    } rdma;
  } wr;
};
struct ibv_recv_wr {
  std::uint64_t wr_id;
  ibv_recv_wr* next;
  ibv_sge* sg_list;
  int num_sge;
};
struct ibv_wc {
  std::uint64_t wr_id;  // if failed, only wr_id, status, qp_num and vendor_err are valid
  ibv_wc_status status;
  ibv_wc_opcode opcode;
  std::uint32_t vendor_err, byte_len, imm_data, qp_num, src_qp;
  unsigned int wc_flags;
};

extern "C" {
ibv_device** ibv_get_device_list(int* count);
void ibv_free_device_list(ibv_device** list);
const char* ibv_get_device_name(ibv_device* device);
ibv_context* ibv_open_device(ibv_device* device);
int ibv_close_device(ibv_context* context);
int ibv_query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes);
int ibv_query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid);
ibv_pd* ibv_alloc_pd(ibv_context* context);
int ibv_dealloc_pd(ibv_pd* domain);
ibv_mr* ibv_reg_mr(ibv_pd* domain, void* memory, std::size_t bytes, int access);
int ibv_dereg_mr(ibv_mr* region);
ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* user, ibv_comp_channel* channel,
                      int vector);
int ibv_destroy_cq(ibv_cq* queue);
int ibv_poll_cq(ibv_cq* queue, int most, ibv_wc* completions);
ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* wanted);
int ibv_modify_qp(ibv_qp* pair, ibv_qp_attr* attributes, int mask);
int ibv_destroy_qp(ibv_qp* pair);
int ibv_post_send(ibv_qp* pair, ibv_send_wr* request, ibv_send_wr** refused);
int ibv_post_recv(ibv_qp* pair, ibv_recv_wr* request, ibv_recv_wr** refused);
const char* ibv_wc_status_str(ibv_wc_status status);
}
