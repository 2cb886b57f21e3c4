// The ring all-reduce in its readable form: a loop over five verbs. Each sends a message to the
// next rank, receives one from the previous rank, or both.
//
//        .--> 0 ---> 1 --.      behind(j): the chunk of the rank that is j places behind
//        '--- 3 <--- 2 <-'
//
// All-reduce among four ranks, as seen by rank 0; rank r adds r to the chunk numbers, modulo 4. x2
// is rank 2's contribution to this chunk.
//
//     step  verb                            chunk  sent to rank 1
//     0     send                behind(1)   3      x0
//     1     recvReduceSend      behind(2)   2      x3 + x0
//     2     recvReduceSend      behind(3)   1      (x2 + x3) + x0
//     3     recvReduceCopySend  behind(0)   0      ((x1 + x2) + x3) + x0: complete, and kept
//     4     recvCopySend        behind(1)   3      chunk 3, complete, and kept
//     5     recvCopySend        behind(2)   2      chunk 2, complete, and kept
//     6     recv                behind(3)   1      nothing: chunk 1, complete, is kept
//
// It runs under all_reduce_perf --algorithm plain_ring, with the bits of --algorithm ring
// (schedule/ring.hpp), whose executors are optimised: slots moves two slices at a time, and mapped
// avoids the slots.
//
// Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
// device/ring.cu is the same loop on GPUs; the verbs' names are NCCL's.
#include <algorithm>

#include "runtime/comm/executor/executors.hpp"
#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::comm {

namespace {

// The operations of one rank on one slice of a chunk. Each verb waits only for the message that it
// receives and for a free slot to send from.
class Verbs {
 public:
  Verbs(Peers& peers, Channels& channels, const Transfer& transfer)
      : peers_(peers),
        t_(transfer),
        next_(wrap(peers.rank() + 1, peers.size())),
        previous_(wrap(peers.rank() - 1, peers.size())),
        out_(channels.out(next_, 0)),
        in_(channels.in(previous_, 0)),
        arithmetic_(transfer.arithmetic(peers.size())),
        width_(size_of(transfer.call.dtype)),
        slice_(peers.segments().message_bytes() / width_),
        chunks_(split_evenly(transfer.call.count, peers.size())) {}

  [[nodiscard]] std::size_t slices() const { return (chunks_[0].count + slice_ - 1) / slice_; }
  void begin_slice(std::size_t index) { begin_ = index * slice_, step_ = 0; }

  void send(int chunk) { pass(chunk, {.add = true, .send = true}); }
  void recvReduceSend(int chunk) { pass(chunk, {.recv = true, .add = true, .send = true}); }
  void recvReduceCopySend(int chunk) {
    pass(chunk, {.recv = true, .add = true, .keep = true, .send = true});
  }
  void recvCopySend(int chunk) { pass(chunk, {.recv = true, .keep = true, .send = true}); }
  void recv(int chunk) { pass(chunk, {.recv = true, .keep = true}); }
  void copy(int chunk) { pass(chunk, {.add = true, .keep = true}); }  // a ring of one rank

 private:
  struct Parts {
    bool recv = false;  // receives a message from the previous rank
    bool add = false;   // includes this rank's contribution
    bool keep = false;  // stores the result in the caller's output
    bool send = false;  // sends the result to the next rank
  };

  // Computes result = contribution op message.
  void pass(int chunk, Parts parts) {
    peers_.health().at_step(step_++);
    const Chunk& c = chunks_[static_cast<std::size_t>(chunk)];
    if (begin_ >= c.count) return;  // shorter chunks have fewer slices
    const std::size_t n = std::min(slice_, c.count - begin_), at = (c.offset + begin_) * width_;
    kernels::ReduceSource sources[2];
    std::byte* results[2];
    std::size_t ins = 0, outs = 0;
    if (parts.add) sources[ins++] = {t_.input.data() + at, arithmetic_.scaled};
    if (parts.recv) {
      peers_.wait(previous_, [this] { return in_.has_message(); });
      sources[ins++] = {in_.slot(), false};
    }
    if (parts.keep) results[outs++] = t_.output.data() + at;
    if (parts.send) {
      peers_.wait(next_, [this] { return out_.has_room(); });
      results[outs++] = out_.slot();
    }
    kernels::cpu::reduce(t_.call.dtype, arithmetic_.reduction, {sources, ins}, {results, outs},
                         Elements(n), arithmetic_.scale);
    if (parts.send) out_.post(n * width_);
    if (parts.recv) in_.release();
  }

  Peers& peers_;
  const Transfer& t_;
  int next_, previous_;
  Outbox& out_;
  Inbox& in_;
  Arithmetic arithmetic_;
  std::size_t width_;  // bytes of an element
  std::size_t slice_;  // elements of a slot
  std::vector<Chunk> chunks_;
  std::size_t begin_ = 0;  // the slice's first element, within each chunk
  std::int64_t step_ = 0;
};

}  // namespace

void ring_all_reduce(Peers& peers, Channels& channels, const Transfer& transfer) {
  const int world = peers.size();
  const auto behind = [&](int j) { return wrap(peers.rank() - j, world); };
  Verbs verbs(peers, channels, transfer);
  for (std::size_t slice = 0; slice < verbs.slices(); ++slice) {
    verbs.begin_slice(slice);
    if (world == 1) {
      verbs.copy(0);
      continue;
    }
    verbs.send(behind(1));
    for (int j = 2; j < world; ++j) verbs.recvReduceSend(behind(j));
    verbs.recvReduceCopySend(behind(0));
    for (int j = 1; j < world - 1; ++j) verbs.recvCopySend(behind(j));
    verbs.recv(behind(world - 1));
  }
}

}  // namespace ringsmith::comm
