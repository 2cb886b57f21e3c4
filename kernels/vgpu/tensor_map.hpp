// The content of an emulated CUtensorMap: a tensor of 16-bit elements and the box that a copy has.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/vgpu/include/cuda.h"

namespace vgpu {

inline constexpr unsigned kPart = 8;  // elements of 16 bytes

struct TensorMap {
  static constexpr std::uint64_t kMark = 0x7667'7075'7465'6e73;  // of an encoded map

  std::uint64_t mark = kMark;
  const std::byte* data = nullptr;
  std::array<std::uint32_t, 3> sizes{};    // elements; x is contiguous
  std::array<std::uint64_t, 2> strides{};  // bytes, of y and z
  std::array<std::uint32_t, 3> box{};

  // Null if the map has not been encoded.
  static const TensorMap* in(const CUtensorMap& map) {
    const auto* tensor = reinterpret_cast<const TensorMap*>(map.opaque);
    return tensor->mark == kMark ? tensor : nullptr;
  }
  [[nodiscard]] std::size_t box_bytes() const { return std::size_t{2} * box[0] * box[1] * box[2]; }
  // Null outside of the tensor, where a copy writes zeros.
  [[nodiscard]] const std::byte* element(std::int64_t x, std::int64_t y, std::int64_t z) const {
    if (x < 0 || y < 0 || z < 0 || x >= sizes[0] || y >= sizes[1] || z >= sizes[2]) return nullptr;
    return data + static_cast<std::uint64_t>(x) * 2 + static_cast<std::uint64_t>(y) * strides[0] +
           static_cast<std::uint64_t>(z) * strides[1];
  }
};
static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap));

}  // namespace vgpu
