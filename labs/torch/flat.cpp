#include "labs/torch/flat.hpp"

#include <ATen/MemoryOverlap.h>
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

std::string words_of(at::ScalarType type) {
  return at::toString(type);  // "Float", "ComplexDouble"
}

}  // namespace

void check_tensor(const char* call, const at::Tensor& tensor, bool written) {
  const auto refuse = [&](const std::string& why) {
    throw UsageError(std::string(call) + ": " + why);
  };
  if (!tensor.defined()) refuse("a tensor is undefined");
  if (!tensor.device().is_cpu())
    refuse("tensors must be on the CPU, got one on " + tensor.device().str() +
           ": this backend moves host memory; call tensor.cpu() first");
  if (tensor.layout() != at::kStrided)
    refuse("a sparse tensor is not supported; call tensor.to_dense() first");
  if (written && at::has_internal_overlap(tensor) == at::MemOverlap::Yes)
    refuse("several elements of the result share memory (expanded?); call tensor.clone()");
}

void check_same_type(const char* call, const at::Tensor& one, const at::Tensor& other) {
  if (one.scalar_type() != other.scalar_type())
    throw UsageError(std::string(call) + ": tensors of the same type are needed, got " +
                     words_of(one.scalar_type()) + " and " + words_of(other.scalar_type()));
}

void check_same_size(const char* call, const at::Tensor& one, const at::Tensor& other) {
  if (one.numel() != other.numel())
    throw UsageError(std::string(call) + ": tensors of the same size are needed, got " +
                     std::to_string(one.numel()) + " and " + std::to_string(other.numel()) +
                     " elements");
}

Flat::Flat(const at::Tensor& tensor, For purpose) : tensor_(tensor), stand_in_(tensor) {
  const at::ScalarType type = tensor.scalar_type();
  const std::optional<DType> known = type_of(type);
  at::ScalarType as = type;
  if (purpose == For::reducing && !known) {
    if (type != at::kChar && type != at::kShort)
      throw UsageError("tensors of type " + words_of(type) +
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
