// Unusual and correct: a tensor is a list of (size, stride) pairs. empty() makes a tensor that owns
// the storage; a view holds its parent. Elements are visited by recursion, copies go through a
// vector, and view and reshape first join contiguous dimensions into runs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "labs/kit/storage.hpp"
#include "shapes.hpp"

namespace lab01 {

struct Dim {
  std::int64_t size, stride;
};

class Tensor {
 public:
  static Tensor empty(const Shape& sizes) {
    Tensor t;
    t.memory_ = kit::allocate(numel_of(sizes));
    t.numbers_ = t.memory_.get();
    t.dims_ = dims_of(sizes, row_major(sizes));
    return t;
  }
  kit::Storage& storage() const { return *numbers_; }
  Shape sizes() const {
    Shape all;
    for (const Dim& d : dims_) all.push_back(d.size);
    return all;
  }
  Shape strides() const {
    Shape all;
    for (const Dim& d : dims_) all.push_back(d.stride);
    return all;
  }
  std::int64_t offset() const { return first_; }
  std::size_t dim() const { return dims_.size(); }
  std::int64_t numel() const { return numel_of(sizes()); }

  std::int64_t position(const Shape& index) const {
    if (index.size() != dim()) refuse("position: " + std::to_string(dim()) + " indices, please");
    std::int64_t at = first_;
    for (std::size_t d = 0; d < dim(); ++d) {
      if (index[d] < 0 || index[d] >= dims_[d].size) refuse("position: outside");
      at += index[d] * dims_[d].stride;
    }
    return at;
  }
  bool is_contiguous() const {
    if (numel() == 0) return true;
    const auto all = runs();
    return all.empty() || (all.size() == 1 && all[0].stride == 1);
  }

  Tensor transpose(int a, int b) const {
    std::vector<int> order;
    for (int d = 0; d < int(dim()); ++d) order.push_back(d);
    std::swap(order[place(a)], order[place(b)]);
    return permute(order);
  }
  Tensor permute(const std::vector<int>& order) const {
    std::vector<int> often(dim(), 0);
    std::vector<Dim> dims;
    for (const int d : order) {
      ++often[place(d)];
      dims.push_back(dims_[place(d)]);
    }
    for (const int n : often)
      if (n != 1) refuse("permute: each dimension once");
    return child(dims, first_);
  }
  Tensor slice(int d, std::int64_t start, std::int64_t stop, std::int64_t step = 1) const {
    if (step < 1) refuse("slice: step");
    auto dims = dims_;
    Dim& of = dims[place(d)];
    if (start < 0) start = start + of.size < 0 ? 0 : start + of.size;
    if (stop < 0) stop += of.size;
    if (stop > of.size) stop = of.size;
    if (start >= stop) {
      of.size = 0;
      return child(dims, first_);
    }
    const std::int64_t first = first_ + start * of.stride;
    const std::int64_t skipped = (stop - 1 - start) % step;
    of = {(stop - 1 - start - skipped) / step + 1, of.stride * step};
    return child(dims, first);
  }
  Tensor select(int d, std::int64_t index) const {
    const Dim of = dims_[place(d)];
    if (index < 0) index += of.size;
    if (index < 0 || index >= of.size) refuse("select: outside");
    auto dims = dims_;
    dims.erase(dims.begin() + std::ptrdiff_t(place(d)));
    return child(dims, first_ + index * of.stride);
  }
  Tensor expand(Shape wanted) const {
    if (wanted.size() < dim()) refuse("expand: too few sizes");
    std::vector<Dim> dims;
    const std::size_t fresh = wanted.size() - dim();
    for (std::size_t d = 0; d < wanted.size(); ++d) {
      const bool is_new = d < fresh;
      if (!is_new && (wanted[d] == -1 || wanted[d] == dims_[d - fresh].size))
        dims.push_back(dims_[d - fresh]);
      else if (wanted[d] >= 0 && (is_new || dims_[d - fresh].size == 1))
        dims.push_back({wanted[d], 0});
      else
        refuse("expand: " + text(sizes()) + " to " + text(wanted));
    }
    const Tensor t = child(dims, first_);
    return t.numel() >= 0 ? t : *this;
  }

  Tensor view(const Shape& wanted) const {
    const Shape all = resolve(wanted, numel());
    const auto found = cut(all);
    if (!found) refuse("view: " + text(sizes()) + " by " + text(strides()) + " needs a copy");
    return child(*found, first_);
  }
  Tensor reshape(const Shape& wanted) const {
    const auto found = cut(resolve(wanted, numel()));
    return found ? child(*found, first_) : contiguous().view(wanted);
  }
  Tensor contiguous() const {
    if (is_contiguous()) return *this;
    Tensor t = empty(sizes());
    std::int64_t next = 0;
    visit([&](std::int64_t p) { t.numbers_->write(next++, numbers_->read(p)); });
    return t;
  }

  double sum() const {
    double total = 0;
    visit([&](std::int64_t p) { total += numbers_->read(p); });
    return total;
  }
  void fill_(double value) {
    check();
    visit([&](std::int64_t p) { numbers_->write(p, value); });
  }
  void copy_(const Tensor& source) {
    take(
        source, [](double, double from) { return from; }, false);
  }
  void add_(const Tensor& source) {
    take(
        source, [](double to, double from) { return to + from; }, true);
  }

 private:
  static std::vector<Dim> dims_of(const Shape& sizes, const Shape& strides) {
    std::vector<Dim> dims;
    for (std::size_t d = 0; d < sizes.size(); ++d) dims.push_back({sizes[d], strides[d]});
    return dims;
  }
  std::size_t place(int d) const {
    const int n = int(dim());
    if (d >= n || d < -n) refuse("there is no dimension " + std::to_string(d));
    return std::size_t((d + n) % n);
  }
  Tensor child(const std::vector<Dim>& dims, std::int64_t first) const {
    Tensor t;
    t.parent_ = std::make_shared<const Tensor>(*this);
    t.numbers_ = numbers_;
    t.dims_ = dims;
    t.first_ = first;
    return t;
  }
  // Returns the dimensions whose size is not 1. A dimension that continues the one before it is
  // joined with it.
  std::vector<Dim> runs() const {
    std::vector<Dim> all;
    for (const Dim& d : dims_) {
      if (d.size == 1) continue;
      if (!all.empty() && all.back().stride == d.stride * d.size)
        all.back() = {all.back().size * d.size, d.stride};
      else
        all.push_back(d);
    }
    return all;
  }
  // Cuts the runs into these sizes, from the back. Returns nullopt if a size does not divide its
  // run.
  std::optional<std::vector<Dim>> cut(const Shape& wanted) const {
    std::vector<Dim> dims = dims_of(wanted, row_major(wanted)), left = runs();
    if (numel() == 0) return dims;
    for (std::size_t d = dims.size(); d-- > 0;) {
      if (dims[d].size == 1) continue;
      Dim& run = left.back();
      if (run.size % dims[d].size != 0) return std::nullopt;
      dims[d].stride = run.stride;
      run = {run.size / dims[d].size, run.stride * dims[d].size};
      if (run.size == 1) left.pop_back();
    }
    return dims;
  }
  void visit(const std::function<void(std::int64_t)>& f) const {
    std::function<void(std::size_t, std::int64_t)> down = [&](std::size_t d, std::int64_t at) {
      if (d == dim()) return f(at);
      for (std::int64_t i = 0; i < dims_[d].size; ++i) down(d + 1, at + i * dims_[d].stride);
    };
    down(0, first_);
  }
  void check() const {
    for (const Dim& d : dims_)
      if (d.stride == 0 && d.size > 1 && numel() > 0) refuse("a number at several places");
  }
  template <class F>
  void take(const Tensor& source, F f, bool reads) {
    check();
    const Tensor from = source.expand(sizes());
    std::vector<double> incoming;
    from.visit([&](std::int64_t p) { incoming.push_back(from.numbers_->read(p)); });
    std::size_t next = 0;
    visit([&](std::int64_t p) {
      numbers_->write(p, f(reads ? numbers_->read(p) : 0, incoming[next++]));
    });
  }

  std::shared_ptr<kit::Storage> memory_;  // set only in a tensor made by empty()
  std::shared_ptr<const Tensor> parent_;  // set only in a view
  kit::Storage* numbers_ = nullptr;       // owned by memory_, here or in an ancestor
  std::vector<Dim> dims_;
  std::int64_t first_ = 0;
};

}  // namespace lab01
