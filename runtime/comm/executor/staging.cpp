#include <algorithm>
#include <array>

#include "runtime/comm/executor/executors.hpp"
#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm {

namespace {

// One block of a collective, elements [at, at + n) of every part. A part is what one rank gives to
// or takes from one other; all_reduce, broadcast and reduce have a single part.
class Block {
 public:
  Block(Peers& peers, std::uint64_t round, const Transfer& transfer, std::size_t part_elements,
        std::size_t at, std::size_t n)
      : peers_(peers),
        t_(transfer),
        round_(round),
        width_(size_of(transfer.call.dtype)),
        part_(part_elements * width_),
        at_(at * width_),
        bytes_(n * width_),
        n_(n) {}

  void stage() {
    const bool root = peers_.rank() == t_.call.root;
    switch (t_.call.collective) {
      case Collective::all_reduce:
      case Collective::all_gather:
        return stage_for_all();
      case Collective::reduce:
      case Collective::gather:
        stage_part(0);
        return expose(0, t_.call.root);
      case Collective::broadcast:
        if (root) stage_for_all();
        return;
      case Collective::scatter:
        if (root) stage_for_each();
        return;
      case Collective::reduce_scatter:
      case Collective::all_to_all:
        return stage_for_each();
      default:
        return;
    }
  }

  void take() {
    const int me = peers_.rank(), world = peers_.size();
    const bool root = me == t_.call.root;
    switch (t_.call.collective) {
      case Collective::all_reduce:
        return reduce_into(0, 0);
      case Collective::reduce:
        if (root) reduce_into(0, 0);
        return;
      case Collective::reduce_scatter:
        return reduce_into(me, 0);
      case Collective::all_gather:
        for (int r = 0; r < world; ++r) copy(r, 0, r);
        return;
      case Collective::gather:
        for (int r = 0; r < world && root; ++r) copy(r, 0, r);
        return;
      case Collective::broadcast:
        if (!root) copy(t_.call.root, 0, 0);
        return;
      case Collective::scatter:
        return copy(t_.call.root, me, 0);
      case Collective::all_to_all:
        for (int r = 0; r < world; ++r) copy(r, me, r);
        return;
      default:
        return;
    }
  }

 private:
  // Part p of a rank's staging memory starts after p blocks.
  [[nodiscard]] std::byte* staged(int rank, int part) const {
    return peers_.staging(rank, round_) + static_cast<std::size_t>(part) * bytes_;
  }
  // Not memcpy, here and below: an empty buffer may have no address.
  void stage_part(int part) {
    std::copy_n(t_.input.data() + static_cast<std::size_t>(part) * part_ + at_, bytes_,
                staged(peers_.rank(), part));
  }
  void expose(int part, int to) { peers_.expose(to, staged(peers_.rank(), part), bytes_); }
  void stage_for_all() {
    stage_part(0);
    peers_.expose_to_all(staged(peers_.rank(), 0), bytes_);
  }
  void stage_for_each() {
    for (int part = 0; part < peers_.size(); ++part) {
      stage_part(part);
      expose(part, part);
    }
  }
  void copy(int from, int from_part, int to_part) {
    std::copy_n(staged(from, from_part), bytes_,
                t_.output.data() + static_cast<std::size_t>(to_part) * part_ + at_);
  }
  void reduce_into(int from_part, int to_part) {
    const Arithmetic arithmetic = arithmetic_of(t_.call.op, peers_.size());
    std::array<kernels::ReduceSource, kernels::kMaxReduceSources> sources;
    const auto world = static_cast<std::size_t>(peers_.size());
    for (std::size_t r = 0; r < world; ++r)
      sources[r] = {staged(static_cast<int>(r), from_part), arithmetic.scaled};
    std::byte* const out = t_.output.data() + static_cast<std::size_t>(to_part) * part_ + at_;
    kernels::cpu::reduce(t_.call.dtype, arithmetic.reduction, {sources.data(), world}, {&out, 1},
                         Elements(n_), arithmetic.scale);
  }

  Peers& peers_;
  const Transfer& t_;
  std::uint64_t round_;
  std::size_t width_, part_, at_, bytes_, n_;  // bytes, except n_: elements
};

// Elements that one rank gives to, or takes from, one other.
std::size_t part_elements(const Call& call, int world) {
  return call.collective == Collective::all_to_all ? call.count / static_cast<std::size_t>(world)
                                                   : call.count;
}

Block whole(Peers& peers, std::uint64_t round, const Transfer& transfer) {
  const std::size_t n = part_elements(transfer.call, peers.size());
  return {peers, round, transfer, n, 0, n};
}

}  // namespace

void stage(Peers& peers, std::uint64_t round, const Transfer& transfer) {
  whole(peers, round, transfer).stage();
}

void take_staged(Peers& peers, std::uint64_t round, const Transfer& transfer) {
  whole(peers, round, transfer).take();
}

void run_staged(Peers& peers, AgreementBarrier& agreement, const Transfer& transfer) {
  const Call& call = transfer.call;
  const bool many_parts = call.collective == Collective::reduce_scatter ||
                          call.collective == Collective::scatter ||
                          call.collective == Collective::all_to_all;
  const std::size_t parts = many_parts ? static_cast<std::size_t>(peers.size()) : 1;
  const std::size_t part = part_elements(call, peers.size());
  const std::size_t most = Layout::kStaging / size_of(call.dtype) / parts;
  std::size_t at = 0;
  do {
    Block block(peers, agreement.next(), transfer, part, at, std::min(most, part - at));
    block.stage();
    agreement.answer(call, transfer.sequence);
    agreement.await_all();
    block.take();
    at += most;
  } while (at < part);
}

}  // namespace ringsmith::comm
