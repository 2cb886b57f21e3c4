// Internal to the simulated device: its objects, and the scheduling of the ranks.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <infiniband/verbs.h>
#include <map>
#include <memory>
#include <random>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

namespace kit::verbs {

struct Context : ibv_context {
  int rank = 0, users = 0;
};
struct Domain : ibv_pd {
  int users = 0;
};
struct Region : ibv_mr {
  int access = 0;
};
struct Completions : ibv_cq {
  std::deque<ibv_wc> waiting;
  int users = 0;
  bool overrun = false;
};
struct SendRequest {
  ibv_send_wr work{};
  std::vector<ibv_sge> pieces;
  std::vector<std::byte> inlined;
  bool is_inline = false;
};
struct Pair : ibv_qp {
  int rank = 0;
  ibv_qp_cap cap{};
  bool signal_all = false;
  ibv_qp_attr attributes{};
  std::deque<SendRequest> sends;  // posted, not executed yet
  // Numbers of requests posted to the send queue and of places freed in it. Polling a completion
  // frees the places of its request and of all earlier requests.
  std::uint64_t posted = 0, freed = 0;
  std::deque<ibv_recv_wr> receives;
  int naks = 0;
  std::uint64_t not_before = 0;  // turn of the next attempt, after a failed attempt
};

struct Rank {
  std::thread thread;
  std::binary_semaphore wake{0};
  bool done = false;
  std::exception_ptr failure;
};

// The state of the simulation, one per process. Ranks run one at a time, so no lock is needed.
struct Hub {
  std::mt19937_64 random;
  std::deque<Rank> ranks;
  int current = 0, idle = 0;
  std::uint64_t turn = 0;
  std::uint32_t next_number = 17, next_key = 0x1000;
  std::binary_semaphore conductor{0};
  std::string hang;
  std::map<std::uint32_t, Pair*> pairs;
  std::map<std::uint32_t, Region*> regions;
  std::map<std::string, int> live;
  std::int64_t unread = 0, send_completions = 0, most_outstanding = 0;
  std::vector<std::int64_t> immediates, rights, lengths;
  // [rank]: the attributes of its last queue pair that reached RTS
  std::map<int, std::vector<std::int64_t>> attributes;
  std::string opened, missing;  // last opened device; kind of object to withhold
  int missing_after = 0;        // objects of that kind to allow before withholding one
  std::string trouble;

  int refuse(int error, const std::string& why);
  // True if a test withholds memory for the next object of this kind.
  bool withheld(const char* kind);
  void complete(Pair& pair, bool send, ibv_wc wc, std::uint64_t place = 0);
  void fail(Pair& pair, ibv_wc_status status);
  void flush(Pair& pair);
  bool carry_out(Pair& pair);
  bool progress();
  void yield();
};
Hub& hub();
ibv_gid gid_of(int rank, int index);

}  // namespace kit::verbs
