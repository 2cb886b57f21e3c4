#include "labs/torch/flat.hpp"

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "runtime/base/error.hpp"

namespace ringsmith::pytorch {

namespace {

std::optional<DType> type_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DType::f32;
    case at::kHalf:
      return DType::f16;
    case at::kBFloat16:
      return DType::bf16;
    case at::kDouble:
      return DType::f64;
    case at::kInt:
      return DType::i32;
    case at::kLong:
      return DType::i64;
    case at::kByte:
      return DType::u8;
    case at::kBool:
      return DType::boolean;
    default:
      return std::nullopt;
  }
}

bool is_one_run(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

bool is_aligned(const at::Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % tensor.element_size() == 0;
}

}  // namespace

Flat::Flat(const at::Tensor& tensor, For purpose) : tensor_(tensor), stand_in_(tensor) {
  const at::ScalarType type = tensor.scalar_type();
  const std::optional<DType> known = type_of(type);
  at::ScalarType as = type;
  if (purpose == For::reducing && !known) {
    if (type != at::kChar && type != at::kShort)
      throw UsageError(std::string("tensors of type ") + at::toString(type) +
                       " cannot be reduced; use a real floating or an integer type");
    as = at::kInt;
  }
  if (as != type || !is_one_run(tensor) || !is_aligned(tensor)) {
    stand_in_ = at::empty(tensor.sizes(), tensor.options().dtype(as));
    stand_in_.copy_(tensor);
  }
  if (purpose == For::reducing)
    type_ = type == at::kBool ? DType::u8 : *type_of(as);
  else
    type_ = known.value_or(DType::u8);
  count_ = stand_in_.nbytes() / size_of(type_);
}

comm::Buffer Flat::buffer(comm::Site site) const {
  return {static_cast<std::byte*>(stand_in_.data_ptr()), Elements(count_), type_, site};
}

comm::ReduceOp Flat::operation(comm::ReduceOp op) const {
  if (tensor_.scalar_type() != at::kBool) return op;
  if (op == comm::ReduceOp::sum) return comm::ReduceOp::max;
  if (op == comm::ReduceOp::prod) return comm::ReduceOp::min;
  return op;
}

void Flat::give_back() {
  if (!stand_in_.is_same(tensor_)) tensor_.copy_(stand_in_);
}

comm::Buffer buffer_like(const at::Tensor& like, std::byte* data, std::size_t parts,
                         comm::Site site) {
  const DType type = type_of(like.scalar_type()).value_or(DType::u8);
  return {data, Elements(like.nbytes() / size_of(type) * parts), type, site};
}

void copy_out(const at::Tensor& from, std::byte* to) {
  if (is_one_run(from)) {
    if (from.nbytes() > 0) std::memcpy(to, from.data_ptr(), from.nbytes());
    return;
  }
  at::from_blob(to, from.sizes(), from.options()).copy_(from);
}

void copy_in(const std::byte* from, const at::Tensor& to) {
  if (is_one_run(to)) {
    if (to.nbytes() > 0) std::memcpy(to.data_ptr(), from, to.nbytes());
    return;
  }
  // Tensors cannot have const elements; this tensor is only read.
  to.copy_(at::from_blob(const_cast<std::byte*>(from), to.sizes(), to.options()));
}

}  // namespace ringsmith::pytorch
