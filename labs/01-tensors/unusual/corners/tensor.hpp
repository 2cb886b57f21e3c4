// Unusual and correct: one constructor makes all tensors; elements are numbered consecutively, and
// division finds their indices; fill_, copy_ and add_ write from the last element to the first, and
// take all values from a snapshot.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "labs/kit/storage.hpp"
#include "shapes.hpp"

namespace lab01 {

class Tensor {
 public:
  static Tensor empty(const Shape& sizes) {
    return {kit::allocate(numel_of(sizes)), sizes, row_major(sizes), 0};
  }
  kit::Storage& storage() const { return *storage_; }
  Shape sizes() const { return sizes_; }
  Shape strides() const { return strides_; }
  std::int64_t offset() const { return offset_; }
  std::size_t dim() const { return sizes_.size(); }
  std::int64_t numel() const { return numel_of(sizes_); }

  std::int64_t position(const Shape& index) const {
    Tensor t = *this;
    if (index.size() != dim()) refuse("position: other dimensions");
    for (const std::int64_t i : index) {
      if (i < 0) refuse("position: negative");
      t = t.select(0, i);
    }
    return t.offset_;
  }
  bool is_contiguous() const {
    const Shape behind = row_major(sizes_);
    bool all = true;
    for (std::size_t d = 0; d < dim(); ++d) all &= sizes_[d] < 2 || behind[d] == strides_[d];
    return all || numel() == 0;
  }

  Tensor transpose(int a, int b) const {
    std::vector<int> order(dim());
    std::iota(order.begin(), order.end(), 0);
    std::swap(order.at(from_front(a)), order.at(from_front(b)));
    return permute(order);
  }
  Tensor permute(const std::vector<int>& order) const {
    std::set<std::size_t> used;
    Shape sizes, strides;
    for (const int d : order) {
      used.insert(from_front(d));
      sizes.push_back(sizes_[from_front(d)]);
      strides.push_back(strides_[from_front(d)]);
    }
    if (used.size() != dim() || order.size() != dim()) refuse("permute: no permutation");
    return {storage_, sizes, strides, offset_};
  }
  Tensor slice(int dim, std::int64_t start, std::int64_t stop, std::int64_t step = 1) const {
    const std::size_t d = from_front(dim);
    if (step <= 0) refuse("slice: step");
    const std::int64_t n = sizes_[d];
    start = std::min(n, std::max<std::int64_t>(0, start < 0 ? start + n : start));
    stop = std::max(start, std::min(n, stop < 0 ? stop + n : stop));
    Shape sizes = sizes_, strides = strides_;
    sizes[d] = (stop - start) / step + ((stop - start) % step != 0);
    strides[d] *= step;
    return {storage_, sizes, strides, offset_ + start * strides_[d]};
  }
  Tensor select(int dim, std::int64_t index) const {
    const std::size_t d = from_front(dim);
    if (index >= sizes_[d] || index + sizes_[d] < 0) refuse("select: no such index");
    Shape sizes, strides;
    for (std::size_t e = 0; e < sizes_.size(); ++e)
      if (e != d) {
        sizes.push_back(sizes_[e]);
        strides.push_back(strides_[e]);
      }
    return {storage_, sizes, strides,
            offset_ + (index + (index < 0 ? sizes_[d] : 0)) * strides_[d]};
  }
  Tensor expand(const Shape& wanted) const {
    if (wanted.size() > dim()) {  // adds one dimension in front, then recurses
      Shape sizes = sizes_, strides = strides_;
      sizes.insert(sizes.begin(), 1);
      strides.insert(strides.begin(), 0);
      if (wanted[wanted.size() - dim() - 1] == -1) refuse("expand: nothing to keep");
      return Tensor{storage_, sizes, strides, offset_}.expand(wanted);
    }
    if (wanted.size() < dim()) refuse("expand: fewer dimensions");
    Shape sizes = sizes_, strides = strides_;
    for (std::size_t d = 0; d < dim(); ++d) {
      if (wanted[d] == -1 || wanted[d] == sizes_[d]) continue;
      if (sizes_[d] != 1) refuse("expand: " + text(sizes_) + " to " + text(wanted));
      sizes[d] = wanted[d];
      strides[d] = 0;
    }
    if (numel_of(sizes) < 0) refuse("expand: never");
    return {storage_, sizes, strides, offset_};
  }

  Tensor view(const Shape& wanted) const {
    const Shape sizes = resolve(wanted, numel());
    if (const auto strides = strides_for(sizes_, strides_, sizes))
      return {storage_, sizes, *strides, offset_};
    refuse("view: copy needed: " + text(sizes) + " from " + text(sizes_) + text(strides_));
  }
  Tensor reshape(const Shape& wanted) const {
    try {
      return view(wanted);
    } catch (const std::invalid_argument&) {
      return contiguous().view(wanted);  // throws again if the sizes were wrong
    }
  }
  Tensor contiguous() const {
    if (is_contiguous()) return *this;
    Tensor t = empty(sizes_);
    for (std::int64_t k = 0; k < numel(); ++k) t.storage_->write(k, number(k));
    return t;
  }

  double sum() const {
    double total = 0;
    for (std::int64_t k = numel(); k-- > 0;) total += number(k);
    return total;
  }
  void fill_(double value) {
    write([&](std::int64_t) { return value; });
  }
  void copy_(const Tensor& source) {
    const Tensor from = source.expand(sizes_);
    write([&](std::int64_t k) { return from.number(k); });
  }
  void add_(const Tensor& source) {
    const Tensor from = source.expand(sizes_);
    write([&](std::int64_t k) { return number(k) + from.number(k); });
  }

 private:
  Tensor(std::shared_ptr<kit::Storage> storage, const Shape& sizes, const Shape& strides,
         std::int64_t offset)
      : storage_(storage), sizes_(sizes), strides_(strides), offset_(offset) {}
  std::size_t from_front(int d) const {
    if (d < 0) d += int(dim());
    if (d < 0 || d >= int(dim())) refuse("no such dimension in " + text(sizes_));
    return std::size_t(d);
  }
  double number(std::int64_t k) const {
    return storage_->read(offset_ + distance(k, sizes_, strides_));
  }
  template <class F>
  void write(F f) {
    if (numel() == 0) return;
    for (std::size_t d = 0; d < dim(); ++d)
      if (sizes_[d] > 1 && strides_[d] == 0) refuse("written twice at one place");
    std::vector<double> snapshot;
    for (std::int64_t k = 0; k < numel(); ++k) snapshot.push_back(f(k));
    for (std::int64_t k = numel(); k-- > 0;)
      storage_->write(offset_ + distance(k, sizes_, strides_), snapshot[std::size_t(k)]);
  }

  std::shared_ptr<kit::Storage> storage_;
  Shape sizes_, strides_;
  std::int64_t offset_;
};

}  // namespace lab01
