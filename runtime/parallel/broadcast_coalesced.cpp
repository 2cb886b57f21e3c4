#include "runtime/parallel/broadcast_coalesced.hpp"

#include <algorithm>
#include <cstring>

#include "runtime/parallel/tensor_bytes.hpp"

namespace ringsmith {

namespace {

// The staging buffer, seen from the tensors: bytes go in until it is full, then it is broadcast
// and, except on the root, handed out again to where they belong.
class Packer {
 public:
  Packer(comm::ProcessGroup& group, int root, Bytes capacity)
      : group_(group), root_(root), staging_(group.allocate(capacity)) {}

  void add(std::byte* data, std::size_t size) {
    while (size > 0) {
      const std::size_t piece = std::min(size, staging_->size().value - used_);
      if (group_.rank() == root_) std::memcpy(staging_->data() + used_, data, piece);
      pieces_.push_back({data, piece});
      used_ += piece;
      data += piece;
      size -= piece;
      if (used_ == staging_->size().value) flush();
    }
  }

  void flush() {
    if (used_ == 0) return;
    group_.broadcast(comm::Buffer(staging_->data(), Elements(used_), DType::u8), root_);
    const std::byte* from = staging_->data();
    for (const Piece& piece : pieces_) {
      if (group_.rank() != root_) std::memcpy(piece.data, from, piece.size);
      from += piece.size;
    }
    pieces_.clear();
    used_ = 0;
  }

 private:
  struct Piece {
    std::byte* data;
    std::size_t size;
  };
  comm::ProcessGroup& group_;
  int root_;
  std::shared_ptr<comm::CommMemory> staging_;
  std::size_t used_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace

void broadcast_coalesced(comm::ProcessGroup& group, const std::vector<Tensor>& tensors, int root,
                         Bytes cap) {
  Bytes total;
  for (const Tensor& t : tensors) total += size_in_bytes(t);
  if (total == Bytes(0) || group.size() == 1) return;
  Packer packer(group, root, std::min(total, cap));
  std::vector<Tensor> dense;  // itself, or a row-major copy, which must live until the last flush
  for (const Tensor& t : tensors) {
    dense.push_back(t.contiguous());
    packer.add(data_of(dense.back()), size_in_bytes(t).value);
  }
  packer.flush();
  if (group.rank() == root) return;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (!tensors[i].is_contiguous()) tensors[i].copy_(dense[i]);
}

}  // namespace ringsmith
