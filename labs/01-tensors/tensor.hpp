// Lab 01, part 2: tensors. Sizes, strides and an offset into a row of numbers.
//
//     storage     0 1 2 3 4 5
//     matrix      sizes [2, 3]  strides [3, 1]  offset 0      0 1 2
//                                                             3 4 5
//     column      sizes [2]     strides [3]     offset 2      2 5
//
// position(index) = offset + index[0] strides[0] + index[1] strides[1] + ...   Views have other
// sizes, strides and offsets for the same storage, and no number moves. But a function that knows
// only a first position and a count, like kit::Storage::sum, reads 2 and 3 for the column.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "labs/kit/storage.hpp"
#include "labs/kit/todo.hpp"
#include "shapes.hpp"

namespace lab01 {

// Copies of a Tensor share its numbers. A dimension argument of -1 is the last dimension, -2 the
// one before it; a dimension that does not exist is refused.
class Tensor {
 public:
  [[nodiscard]] const Shape& sizes() const { return sizes_; }
  [[nodiscard]] const Shape& strides() const { return strides_; }
  [[nodiscard]] std::int64_t offset() const { return offset_; }
  [[nodiscard]] std::size_t dim() const { return sizes_.size(); }
  [[nodiscard]] std::int64_t numel() const { return numel_of(sizes_); }

  // Task 1. Allocates a storage for these sizes with kit::allocate; the elements are in row-by-row
  // order. The storage is freed with the last tensor that refers to it. The owner of a tensor may
  // read and write its storage: this lab's driver and lab 13 store their numbers this way.
  static Tensor empty(const Shape& sizes);
  [[nodiscard]] kit::Storage& storage() const;

  // Task 2. Returns the position of an element. Refuses a wrong number of indices, and indices
  // outside 0..size-1.
  [[nodiscard]] std::int64_t position(const Shape& index) const;
  // Task 2. True if the elements are stored row by row without gaps. No loop over elements: there
  // may be 2^40. The stride of a size of 1 is never used; a tensor without elements is contiguous.
  [[nodiscard]] bool is_contiguous() const;

  // Task 3. Views: other sizes, strides and offsets for the same storage. A view reads no number.
  // Swaps two dimensions.
  [[nodiscard]] Tensor transpose(int a, int b) const;
  // Dimension d of the result is dimension dims[d]. Refuses lists that are not permutations.
  [[nodiscard]] Tensor permute(const std::vector<int>& dims) const;
  // Like Python's [start:stop:step] in one dimension: negative positions count from the end,
  // positions outside are clamped to the nearest end, and there are no elements if stop is not
  // after start. Refuses step < 1.
  [[nodiscard]] Tensor slice(int dim, std::int64_t start, std::int64_t stop,
                             std::int64_t step = 1) const;
  // Fixes the index in one dimension and removes the dimension. Negative indices count from the
  // end; refuses an index out of range.
  [[nodiscard]] Tensor select(int dim, std::int64_t index) const;
  // Repeats elements. Sizes are matched from the back: where this tensor has a size of 1, or no
  // dimension, the result may have any size; other sizes must be equal. -1 keeps the present size.
  [[nodiscard]] Tensor expand(const Shape& sizes) const;

  // Task 4. Shows the same elements in the same order with other sizes; one size may be -1
  // (shapes.hpp). The result is always a view. Refuses sizes that would need a copy; the message
  // has text() of sizes and strides.
  [[nodiscard]] Tensor view(const Shape& sizes) const;
  // Returns a view if possible, else a view of a contiguous copy.
  [[nodiscard]] Tensor reshape(const Shape& sizes) const;
  // Returns this tensor if it is contiguous, else a contiguous copy. Copying reads and writes each
  // element once.
  [[nodiscard]] Tensor contiguous() const;

  // Task 5. Functions on the numbers of any tensor. The functions that write refuse a target that
  // shows one number at several places. A target may have no elements.
  [[nodiscard]] double sum() const;  // 0 if there are no elements
  void fill_(double value);
  // source is expanded to this tensor's sizes. It may share numbers with the target: the result is
  // computed from the values before the call. add_ adds to each element.
  void copy_(const Tensor& source);
  void add_(const Tensor& source);

 private:
  Shape sizes_, strides_;
  std::int64_t offset_ = 0;
#ifdef SOLUTION
  std::shared_ptr<kit::Storage> storage_;

  [[nodiscard]] Tensor seen_as(Shape sizes, Shape strides) const {
    Tensor t = *this;
    t.sizes_ = std::move(sizes);
    t.strides_ = std::move(strides);
    return t;
  }
  // Returns source, or a copy of it if writing to this tensor could change it.
  [[nodiscard]] Tensor apart(const Tensor& source) const {
    if (source.storage_ != storage_) return source;
    Tensor t = empty(source.sizes_);
    t.copy_(source);
    return t;
  }
#else
  // Task 1: which member holds the storage?
#endif
};

#ifdef SOLUTION

inline Tensor Tensor::empty(const Shape& sizes) {
  Tensor t;
  t.storage_ = kit::allocate(numel_of(sizes));
  return t.seen_as(sizes, row_major(sizes));
}

inline kit::Storage& Tensor::storage() const { return *storage_; }

inline std::int64_t Tensor::position(const Shape& index) const {
  bool inside = index.size() == dim();
  std::int64_t at = offset_;
  for (std::size_t d = 0; d < dim() && inside; ++d) {
    inside = index[d] >= 0 && index[d] < sizes_[d];
    at += index[d] * strides_[d];
  }
  if (!inside) refuse("position: no element " + text(index) + " in sizes " + text(sizes_));
  return at;
}

inline bool Tensor::is_contiguous() const {
  const Shape wanted = row_major(sizes_);
  for (std::size_t d = 0; d < dim(); ++d)
    if (sizes_[d] != 1 && strides_[d] != wanted[d]) return numel() == 0;
  return true;
}

inline std::size_t wrap(const char* what, const Tensor& t, int dim) {
  const int n = int(t.dim());
  if (dim < -n || dim >= n)
    refuse(std::string(what) + ": no dimension " + std::to_string(dim) + " in sizes " +
           text(t.sizes()));
  return std::size_t(dim < 0 ? dim + n : dim);
}

inline Tensor Tensor::transpose(int a, int b) const {
  const std::size_t i = wrap("transpose", *this, a), j = wrap("transpose", *this, b);
  Tensor t = *this;
  std::swap(t.sizes_[i], t.sizes_[j]);
  std::swap(t.strides_[i], t.strides_[j]);
  return t;
}

inline Tensor Tensor::permute(const std::vector<int>& dims) const {
  if (dims.size() != dim()) refuse("permute: all dimensions of " + text(sizes_) + " are needed");
  std::vector<bool> taken(dim());
  Tensor t = *this;
  for (std::size_t d = 0; d < dim(); ++d) {
    const std::size_t from = wrap("permute", *this, dims[d]);
    if (taken[from]) refuse("permute: dimension " + std::to_string(dims[d]) + " is there twice");
    taken[from] = true;
    t.sizes_[d] = sizes_[from];
    t.strides_[d] = strides_[from];
  }
  return t;
}

inline Tensor Tensor::slice(int dim, std::int64_t start, std::int64_t stop,
                            std::int64_t step) const {
  const std::size_t d = wrap("slice", *this, dim);
  if (step < 1) refuse("slice: step " + std::to_string(step) + " is not positive");
  const auto place = [n = sizes_[d]](std::int64_t p) {
    return std::clamp<std::int64_t>(p < 0 ? p + n : p, 0, n);
  };
  const std::int64_t length = place(stop) - place(start);
  Tensor t = *this;
  t.sizes_[d] = length > 0 ? (length - 1) / step + 1 : 0;
  if (length > 0) t.offset_ += place(start) * strides_[d];
  if (t.sizes_[d] > 1) t.strides_[d] *= step;
  return t;
}

inline Tensor Tensor::select(int dim, std::int64_t index) const {
  const std::size_t d = wrap("select", *this, dim);
  if (index < -sizes_[d] || index >= sizes_[d])
    refuse("select: no index " + std::to_string(index) + " in dimension " + std::to_string(dim) +
           " of sizes " + text(sizes_));
  Tensor t = *this;
  t.offset_ += (index < 0 ? index + sizes_[d] : index) * strides_[d];
  t.sizes_.erase(t.sizes_.begin() + std::ptrdiff_t(d));
  t.strides_.erase(t.strides_.begin() + std::ptrdiff_t(d));
  return t;
}

inline Tensor Tensor::expand(const Shape& sizes) const {
  Tensor t = seen_as(sizes, Shape(sizes.size(), 0));
  bool fits = sizes.size() >= dim();
  for (std::size_t d = 0; d < dim() && fits; ++d) {
    const std::size_t to = sizes.size() - dim() + d;
    if (sizes[to] == -1) t.sizes_[to] = sizes_[d];
    if (t.sizes_[to] == sizes_[d]) t.strides_[to] = strides_[d];
    fits = t.sizes_[to] == sizes_[d] || sizes_[d] == 1;
  }
  if (!fits) refuse("expand: sizes " + text(sizes_) + " do not expand to " + text(sizes));
  (void)t.numel();  // refuses negative sizes and too many elements
  return t;
}

inline Tensor Tensor::view(const Shape& sizes) const {
  const Shape wanted = resolve(sizes, numel());
  const std::optional<Shape> strides = strides_for(sizes_, strides_, wanted);
  if (!strides)
    refuse("view: sizes " + text(sizes_) + " with strides " + text(strides_) +
           " cannot be seen as " + text(wanted) + " without a copy");
  return seen_as(wanted, *strides);
}

inline Tensor Tensor::reshape(const Shape& sizes) const {
  const Shape wanted = resolve(sizes, numel());
  return (strides_for(sizes_, strides_, wanted) ? *this : contiguous()).view(wanted);
}

inline Tensor Tensor::contiguous() const { return is_contiguous() ? *this : apart(*this); }

inline double Tensor::sum() const {
  const Tensor row = contiguous();
  return row.storage_->sum(row.offset_, row.numel());
}

// Calls f with each index of t, in order.
template <class F>
void each_index(const Tensor& t, F f) {
  Shape index(t.dim(), 0);
  for (std::int64_t left = t.numel(); left > 0; --left) {
    f(index);
    for (std::size_t d = t.dim(); d-- > 0 && ++index[d] == t.sizes()[d];) index[d] = 0;
  }
}

inline void check_target(const char* what, const Tensor& t) {
  for (std::size_t d = 0; d < t.dim(); ++d)
    if (t.sizes()[d] > 1 && t.strides()[d] == 0 && t.numel() > 0)
      refuse(std::string(what) + ": sizes " + text(t.sizes()) + " with strides " +
             text(t.strides()) + " show one number at several places");
}

inline void Tensor::fill_(double value) {
  check_target("fill_", *this);
  each_index(*this, [&](const Shape& index) { storage_->write(position(index), value); });
}

inline void Tensor::copy_(const Tensor& source) {
  check_target("copy_", *this);
  const Tensor from = apart(source.expand(sizes_));
  each_index(*this, [&](const Shape& index) {
    storage_->write(position(index), from.storage_->read(from.position(index)));
  });
}

inline void Tensor::add_(const Tensor& source) {
  check_target("add_", *this);
  const Tensor from = apart(source.expand(sizes_));
  each_index(*this, [&](const Shape& index) {
    const std::int64_t at = position(index);
    storage_->write(at, storage_->read(at) + from.storage_->read(from.position(index)));
  });
}

#else

inline Tensor Tensor::empty(const Shape&) { kit::todo("task 1, empty"); }
inline kit::Storage& Tensor::storage() const { kit::todo("task 1, storage"); }

inline std::int64_t Tensor::position(const Shape&) const { kit::todo("task 2, position"); }
inline bool Tensor::is_contiguous() const { kit::todo("task 2, is_contiguous"); }

inline Tensor Tensor::transpose(int, int) const { kit::todo("task 3, transpose"); }
inline Tensor Tensor::permute(const std::vector<int>&) const { kit::todo("task 3, permute"); }
inline Tensor Tensor::slice(int, std::int64_t, std::int64_t, std::int64_t) const {
  kit::todo("task 3, slice");
}
inline Tensor Tensor::select(int, std::int64_t) const { kit::todo("task 3, select"); }
inline Tensor Tensor::expand(const Shape&) const { kit::todo("task 3, expand"); }

inline Tensor Tensor::view(const Shape&) const { kit::todo("task 4, view"); }
inline Tensor Tensor::reshape(const Shape&) const { kit::todo("task 4, reshape"); }
inline Tensor Tensor::contiguous() const { kit::todo("task 4, contiguous"); }

inline double Tensor::sum() const { kit::todo("task 5, sum"); }
inline void Tensor::fill_(double) { kit::todo("task 5, fill_"); }
inline void Tensor::copy_(const Tensor&) { kit::todo("task 5, copy_"); }
inline void Tensor::add_(const Tensor&) { kit::todo("task 5, add_"); }

#endif

}  // namespace lab01
