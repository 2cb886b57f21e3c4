// Functions that change a tensor's shape or copy it.

#include "runtime/autograd/autocast.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/autograd/tensor_grad.hpp"
#include "runtime/device/profiler.hpp"
#include "runtime/tensor/raw.hpp"

namespace ringsmith {

namespace {

using Grads = std::vector<Tensor>;

Tensor reshaped(const char* node, const Tensor& x, Tensor y) {
  return record(node, {x}, y, {}, [sizes = x.sizes()](const Saved&, const Tensor& g) {
    return Grads{g.reshape(sizes)};
  });
}

// The tensor of zeros of which g is already the part (Storage::set_zero_outside), or an undefined
// tensor. cross_entropy makes such gradients for padded logits.
template <class Part>
Tensor whole_of(const Tensor& g, const Shape& sizes, const Part& part) {
  const std::shared_ptr<Storage>& storage = g.storage();
  const auto bytes = static_cast<std::size_t>(numel_of(sizes)) * size_of(g.dtype());
  if (!storage->is_zero_outside(g.numel()) || storage->size().value != bytes) return {};
  Tensor whole = Tensor::from_storage(storage, sizes, contiguous_strides(sizes), 0, g.dtype());
  const Tensor same = part(whole);
  const bool fits = same.sizes() == g.sizes() && same.strides() == g.strides() &&
                    same.storage_offset() == g.storage_offset();
  if (!fits) return {};
  storage->set_zero_outside(-1);  // later writes through `whole` would make it false
  return whole;
}

// y is a part of x, so the gradient is zero elsewhere. part(t) returns the same part of t.
template <class Part>
Tensor part_of(const char* node, const Tensor& x, const Part& part) {
  return record(node, {x}, part(x), {}, [sizes = x.sizes(), part](const Saved&, const Tensor& g) {
    if (g.sizes() == sizes) return Grads{g};  // the part is all of x
    if (const Tensor whole = whole_of(g, sizes, part); whole.defined()) return Grads{whole};
    const Tensor gx = zeros(sizes, g.options());
    part(gx).copy_(g);
    return Grads{gx};
  });
}

}  // namespace

Tensor view(const Tensor& x, const Shape& sizes) {
  const profile::Operation operation("view");
  return reshaped("ViewBackward", x, x.view(sizes));
}
Tensor reshape(const Tensor& x, const Shape& sizes) {
  const profile::Operation operation("reshape");
  return reshaped("ReshapeBackward", x, x.reshape(sizes));
}
Tensor squeeze(const Tensor& x, int dim) {
  const profile::Operation operation("squeeze");
  return reshaped("SqueezeBackward", x, x.squeeze(dim));
}
Tensor unsqueeze(const Tensor& x, int dim) {
  const profile::Operation operation("unsqueeze");
  return reshaped("UnsqueezeBackward", x, x.unsqueeze(dim));
}

Tensor transpose(const Tensor& x, int dim0, int dim1) {
  const profile::Operation operation("transpose");
  return record(
      "TransposeBackward", {x}, x.transpose(dim0, dim1), {},
      [dim0, dim1](const Saved&, const Tensor& g) { return Grads{g.transpose(dim0, dim1)}; });
}

Tensor permute(const Tensor& x, const std::vector<int>& dims) {
  const profile::Operation operation("permute");
  Tensor y = x.permute(dims);
  std::vector<int> back(dims.size());
  for (std::size_t i = 0; i < dims.size(); ++i)
    back[static_cast<std::size_t>(dims[i] < 0 ? dims[i] + x.dim() : dims[i])] = static_cast<int>(i);
  return record("PermuteBackward", {x}, y, {},
                [back](const Saved&, const Tensor& g) { return Grads{g.permute(back)}; });
}

Tensor expand(const Tensor& x, const Shape& sizes) {
  const profile::Operation operation("expand");
  return record(
      "ExpandBackward", {x}, x.expand(sizes), {},
      [from = x.sizes()](const Saved&, const Tensor& g) { return Grads{raw::sum_to(g, from)}; });
}

Tensor slice(const Tensor& x, int dim, std::int64_t start, std::int64_t stop, std::int64_t step) {
  const profile::Operation operation("slice");
  return part_of("SliceBackward", x,
                 [=](const Tensor& t) { return t.slice(dim, start, stop, step); });
}

Tensor select(const Tensor& x, int dim, std::int64_t index) {
  const profile::Operation operation("select");
  return part_of("SelectBackward", x, [=](const Tensor& t) { return t.select(dim, index); });
}

Tensor clone(const Tensor& x) {
  const profile::Operation operation("clone");
  return reshaped("CloneBackward", x, x.clone());
}

Tensor to(const Tensor& x, Device device) {
  if (x.device() == device) return x;
  const profile::Operation operation("to");
  return record("ToBackward", {x}, x.to(device), {},
                [from = x.device()](const Saved&, const Tensor& g) { return Grads{g.to(from)}; });
}

Tensor to(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const profile::Operation operation("to");
  const Tensor y = x.to(dtype);
  return is_floating(dtype) && is_floating(x.dtype()) ? record_conversion(x, y) : y;
}

// The gradient of a leaf is written directly to its destination. Under autocast, f32 weights have
// 16-bit copies, whose gradients are widened while they are written into the bucket.
Tensor record_conversion(const Tensor& x, const Tensor& y) {
  return record("ToBackward", {x}, y, {}, [from = x.dtype()](const Saved& saved, const Tensor& g) {
    const auto [place, accumulate] = grad_destination(saved.edge(0));
    if (!place.defined()) return Grads{g.to(from)};
    accumulate ? raw::add_into(place, g) : place.copy_(g);
    return Grads{place};
  });
}

Tensor contiguous(const Tensor& x) { return x.is_contiguous() ? x : clone(x); }

Tensor cat(const std::vector<Tensor>& given, int dim) {
  const profile::Operation operation("cat");
  const std::vector<Tensor> tensors = autocast::widest(given);
  require(!tensors.empty(), "cat: no tensors");
  const Tensor& first = tensors[0];
  Shape sizes = first.sizes();
  (void)first.size(dim);  // checks dim
  const auto d = static_cast<std::size_t>(dim < 0 ? dim + first.dim() : dim);
  sizes[d] = 0;
  std::vector<std::int64_t> starts{0};
  for (const Tensor& t : tensors) {
    Shape expected = t.sizes();
    const bool same_rank = expected.size() == sizes.size();
    if (same_rank) expected[d] = sizes[d];
    if (!same_rank || expected != sizes || t.dtype() != first.dtype())
      throw UsageError("cat: shapes " + to_string(first.sizes()) + " and " + to_string(t.sizes()) +
                       " of dtypes " + std::string(name_of(first.dtype())) + " and " +
                       std::string(name_of(t.dtype())) + " do not fit along dimension " +
                       std::to_string(dim));
    (void)raw::common_device("cat", first, t);
    std::int64_t end = 0;
    if (__builtin_add_overflow(starts.back(), t.sizes()[d], &end))
      throw UsageError("cat: too large: " + std::to_string(tensors.size()) + " tensors like " +
                       to_string(t.sizes()));
    starts.push_back(end);
    sizes[d] = 0;
  }
  sizes[d] = starts.back();
  Tensor y = Tensor::empty(sizes, first.options());
  const int at = static_cast<int>(d);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    y.slice(at, starts[i], starts[i + 1]).copy_(tensors[i]);
  return record("CatBackward", tensors, y, {}, [starts, at](const Saved& saved, const Tensor& g) {
    Grads grads;
    for (std::size_t i = 0; i + 1 < starts.size(); ++i)
      grads.push_back(saved.needs(i) ? g.slice(at, starts[i], starts[i + 1]) : Tensor());
    return grads;
  });
}

}  // namespace ringsmith
