#include "runtime/parallel/broadcast_coalesced.hpp"

#include <algorithm>
#include <cstring>

#include "runtime/device/transfer.hpp"

namespace ringsmith {

namespace {

Device staging_for(const comm::ProcessGroup& group, const std::vector<Tensor>& tensors) {
  for (const Tensor& t : tensors)
    if (t.device() != group.device()) return Device::cpu();
  return group.device();
}

// Appends tensors until the staging buffer is full, broadcasts the buffer and, except on the root,
// unpacks it.
class Packer {
 public:
  Packer(comm::ProcessGroup& group, int root, Bytes capacity, Device where)
      : group_(group), root_(root), where_(where), staging_(group.allocate_on(where, capacity)) {}

  // The tensor must be contiguous and remain valid until flush().
  void add(const Tensor& tensor) {
    std::byte* data = data_of(tensor);
    std::size_t size = size_in_bytes(tensor).value;
    while (size > 0) {
      const std::size_t piece = std::min(size, staging_->size().value - used_);
      if (group_.rank() == root_)
        transfer(staging_->data() + used_, where_, data, tensor.device(), Bytes(piece));
      pieces_.push_back({&tensor, data, piece});
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
      if (group_.rank() != root_) unpack(piece, from);
      from += piece.size;
    }
    pieces_.clear();
    used_ = 0;
  }

 private:
  struct Piece {
    const Tensor* tensor;
    std::byte* data;
    std::size_t size;
  };

  // A CPU tensor that already holds these bytes is left unmodified, so that a constant buffer stays
  // valid in a graph that has saved it for backward. On a GPU the comparison would synchronise.
  void unpack(const Piece& piece, const std::byte* from) const {
    const Device device = piece.tensor->device();
    if (device.is_cpu() && std::memcmp(piece.data, from, piece.size) == 0) return;
    transfer(piece.data, device, from, where_, Bytes(piece.size));
    piece.tensor->bump_version();
  }

  comm::ProcessGroup& group_;
  int root_;
  Device where_;
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
  Packer packer(group, root, std::min(total, cap), staging_for(group, tensors));
  std::vector<Tensor> dense;  // the tensor itself, or a row-major copy
  dense.reserve(tensors.size());
  for (const Tensor& t : tensors) dense.push_back(t.contiguous());
  for (const Tensor& t : dense) packer.add(t);
  packer.flush();
  if (group.rank() == root) return;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (!tensors[i].is_contiguous()) tensors[i].copy_(dense[i]);
}

}  // namespace ringsmith
