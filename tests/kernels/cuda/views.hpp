// One tensor in many arrangements of memory, both on the host and on the device.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/view.hpp"
#include "tests/kernels/cuda/support.hpp"

namespace ringsmith::testing {

using Sizes = std::vector<std::int64_t>;

inline std::int64_t numel_of(const Sizes& sizes) {
  std::int64_t n = 1;
  for (const std::int64_t s : sizes) n *= s;
  return n;
}

// Returns a row-major layout. Neighbours in the last dimension are `gap` elements apart.
inline kernels::Layout contiguous_layout(const Sizes& sizes, std::int64_t gap = 1) {
  kernels::Layout layout;
  layout.dims = static_cast<int>(sizes.size());
  for (std::size_t d = sizes.size(); d-- > 0; gap *= sizes[d]) {
    layout.sizes[d] = sizes[d];
    layout.strides[d] = gap;
  }
  return layout;
}

struct Arrangement {
  std::string name;
  kernels::Layout layout;
  std::size_t memory = 0;  // elements
  std::size_t offset = 0;  // of the first element from an aligned address
};

inline std::vector<Arrangement> arrangements(const Sizes& sizes) {
  const auto n = static_cast<std::size_t>(numel_of(sizes));
  std::vector<Arrangement> all{{"contiguous", contiguous_layout(sizes), n, 0},
                               {"misaligned", contiguous_layout(sizes), n, 1},
                               {"gaps", contiguous_layout(sizes, 2), 2 * n, 0}};
  if (sizes.size() < 2) return all;
  // The first and the last dimension are swapped in memory.
  Sizes swapped = sizes;
  std::swap(swapped.front(), swapped.back());
  kernels::Layout transposed = contiguous_layout(swapped);
  std::swap(transposed.sizes[0], transposed.sizes[sizes.size() - 1]);
  std::swap(transposed.strides[0], transposed.strides[sizes.size() - 1]);
  all.push_back({"transposed", transposed, n, 0});
  // Rows of a wider tensor.
  Sizes wide = sizes;
  wide.back() += 4;
  kernels::Layout rows = contiguous_layout(wide);
  rows.sizes[sizes.size() - 1] = sizes.back();
  all.push_back({"rows of a wider one", rows, static_cast<std::size_t>(numel_of(wide)), 0});
  return all;
}

// Calls f(offset, index of the element in row-major order) for all elements.
template <class F>
void each_element(const kernels::Layout& layout, const F& f) {
  for (std::int64_t i = 0; i < layout.numel(); ++i) {
    std::int64_t rest = i, offset = 0;
    for (auto d = static_cast<std::size_t>(layout.dims); d-- > 0; rest /= layout.sizes[d])
      offset += rest % layout.sizes[d] * layout.strides[d];
    f(static_cast<std::size_t>(offset), static_cast<std::size_t>(i));
  }
}

// The values (row-major) in an arrangement, one copy on the host and one on the device. The kernel
// must not write to the gaps.
template <class T>
class Arranged {
 public:
  Arranged(Arrangement arrangement, const std::vector<T>& values)
      : arrangement_(std::move(arrangement)), host_(arrangement_.memory, T(77)) {
    each_element(arrangement_.layout,
                 [&](std::size_t at, std::size_t i) { host_[at] = values[i]; });
    device_ = std::make_unique<OnDevice<T>>(host_, arrangement_.offset);
  }

  [[nodiscard]] kernels::View<T> device() const { return {device_->data(), arrangement_.layout}; }
  [[nodiscard]] kernels::View<T> host() const { return {host_.data(), arrangement_.layout}; }
  // All memory, including the gaps.
  [[nodiscard]] std::vector<T> device_values() const { return device_->host(); }
  [[nodiscard]] std::vector<T> host_values() const { return host_; }

 private:
  Arrangement arrangement_;
  mutable std::vector<T> host_;
  std::unique_ptr<OnDevice<T>> device_;
};

}  // namespace ringsmith::testing
