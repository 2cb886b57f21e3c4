#include <algorithm>
#include <array>

#include "runtime/comm/executor/executors.hpp"
#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm {

namespace {

// gives_parts: a rank gives a separate part to each rank. takes_parts: it takes one from each.
bool gives_parts(const Contract& contract) {
  return contract.exchanges || (contract.output == Extent::own && contract.input != Extent::own);
}
bool takes_parts(const Contract& contract) {
  return contract.exchanges || (contract.input == Extent::own && contract.output != Extent::own);
}

// One block of a collective: elements [at, at + n) of every part. A part is the data that one rank
// gives to or takes from another; all_reduce, broadcast and reduce have a single part.
class StagedBlock {
 public:
  StagedBlock(Segments& segments, std::uint64_t round, const Transfer& transfer,
              std::size_t part_elements, std::size_t at, std::size_t n)
      : segments_(segments),
        t_(transfer),
        contract_(contract_of(transfer.call.collective)),
        round_(round),
        width_(size_of(transfer.call.dtype)),
        part_(part_elements * width_),
        at_(at * width_),
        bytes_(n * width_),
        n_(n) {}

  void stage() {
    if (!has(contract_.input, segments_.rank(), t_.call.root)) return;
    if (gives_parts(contract_)) {
      for (int part = 0; part < segments_.size(); ++part) {
        stage_part(part);
        segments_.expose(part, staged(segments_.rank(), part), bytes_);
      }
      return;
    }
    stage_part(0);
    if (contract_.output == Extent::at_root)
      segments_.expose(t_.call.root, staged(segments_.rank(), 0), bytes_);
    else
      segments_.expose_to_all(staged(segments_.rank(), 0), bytes_);
  }

  void take() {
    const int me = segments_.rank(), root = t_.call.root, mine = gives_parts(contract_) ? me : 0;
    if (!has(contract_.output, me, root)) return;
    if (t_.call.collective == Collective::broadcast && me == root) return;  // has the data
    for (int part = 0; part < (takes_parts(contract_) ? segments_.size() : 1); ++part) {
      const Origins origins = origins_of(contract_, segments_.size(), root, part);
      if (contract_.reduces)
        reduce(origins, mine);
      else
        copy(origins.first, mine, part);
    }
  }

 private:
  [[nodiscard]] std::byte* staged(int rank, int part) const {
    return segments_.staging(rank, round_) + static_cast<std::size_t>(part) * bytes_;
  }
  // copy_n instead of memcpy, here and below, because an empty buffer may have a null address.
  void stage_part(int part) {
    std::copy_n(t_.input.data() + static_cast<std::size_t>(part) * part_ + at_, bytes_,
                staged(segments_.rank(), part));
  }
  void copy(int from, int from_part, int to_part) {
    std::copy_n(staged(from, from_part), bytes_,
                t_.output.data() + static_cast<std::size_t>(to_part) * part_ + at_);
  }
  void reduce(Origins origins, int from_part) {
    const Arithmetic arithmetic = t_.arithmetic(segments_.size());
    std::array<kernels::ReduceSource, kernels::kMaxReduceSources> sources;
    std::size_t n = 0;
    for (int r = origins.first; r < origins.last; ++r)
      sources[n++] = {staged(r, from_part), arithmetic.scaled};
    std::byte* const out = t_.output.data() + at_;
    kernels::cpu::reduce(t_.call.dtype, arithmetic.reduction, {sources.data(), n}, {&out, 1},
                         Elements(n_), arithmetic.scale);
  }

  Segments& segments_;
  const Transfer& t_;
  Contract contract_;
  std::uint64_t round_;
  std::size_t width_, part_, at_, bytes_, n_;  // bytes, except n_: elements
};

std::size_t part_elements(const Call& call, int world) {
  return contract_of(call.collective).exchanges ? call.count / static_cast<std::size_t>(world)
                                                : call.count;
}

StagedBlock whole(Segments& segments, std::uint64_t round, const Transfer& transfer) {
  const std::size_t n = part_elements(transfer.call, segments.size());
  return {segments, round, transfer, n, 0, n};
}

}  // namespace

void stage(Segments& segments, std::uint64_t round, const Transfer& transfer) {
  whole(segments, round, transfer).stage();
}

void take_staged(Segments& segments, std::uint64_t round, const Transfer& transfer) {
  whole(segments, round, transfer).take();
}

void run_staged(Segments& segments, AgreementBarrier& agreement, const Transfer& transfer) {
  const Call& call = transfer.call;
  const bool many_parts = gives_parts(contract_of(call.collective));
  const std::size_t parts = many_parts ? static_cast<std::size_t>(segments.size()) : 1;
  const std::size_t part = part_elements(call, segments.size());
  const std::size_t most = Layout::kStaging / size_of(call.dtype) / parts;
  std::size_t at = 0;
  do {
    StagedBlock block(segments, agreement.next(), transfer, part, at, std::min(most, part - at));
    block.stage();
    agreement.answer();
    agreement.await_all();
    block.take();
    at += most;
  } while (at < part);
}

}  // namespace ringsmith::comm
