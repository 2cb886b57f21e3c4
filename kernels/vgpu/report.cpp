#include "kernels/vgpu/report.hpp"

#include <cstdio>

#include "kernels/vgpu/device.hpp"
#include "kernels/vgpu/host_memory.hpp"
#include "kernels/vgpu/imports.hpp"

namespace vgpu {

std::string describe_numbers(const std::vector<unsigned>& sorted) {
  constexpr int kMostRanges = 10;
  std::string out;
  int ranges = 0;
  for (std::size_t i = 0; i < sorted.size();) {
    std::size_t end = i + 1;
    while (end < sorted.size() && sorted[end] == sorted[end - 1] + 1) ++end;
    if (++ranges > kMostRanges) return out + ", ...";
    if (!out.empty()) out += ", ";
    out += std::to_string(sorted[i]);
    if (end > i + 1) out += "-" + std::to_string(sorted[end - 1]);
    i = end;
  }
  return out;
}

std::string describe_address(const void* address) {
  if (const Device* device = Device::owner(address)) return device->memory().describe(address);
  if (const auto import = Imports::get().find(address))
    return Imports::get().describe(*import, address);
  if (const auto pinned = PinnedMemory::get().find(address))
    return "pinned host memory (" + std::to_string(pinned->bytes) + " bytes) + " +
           std::to_string(static_cast<const std::byte*>(address) - pinned->start);
  char text[32];
  std::snprintf(text, sizeof text, "host memory %p", address);
  return text;
}

}  // namespace vgpu
