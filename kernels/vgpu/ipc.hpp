// Blocks of other processes' device memory that this process has opened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "kernels/vgpu/ipc_server.hpp"

namespace vgpu {

struct MemoryName {  // what a cudaIpcMemHandle_t holds
  Exporter exporter;
  std::int32_t device = 0;
  std::uint64_t offset = 0, bytes = 0;
  std::int32_t small = 0;  // Arena::Block::small
  auto operator<=>(const MemoryName&) const = default;
};

class Imports {
 public:
  struct Import {
    std::byte* start = nullptr;
    std::size_t bytes = 0;
    int device = 0;  // for which it was opened
    MemoryName name;
    int opened = 0;  // times
  };
  static Imports& get();
  // Null and the reason if the exporter will not give it.
  void* open(const MemoryName& name, int device, std::string& reason);
  // What was closed last stays closed to everybody: its addresses are not used again.
  bool close(void* start);
  // Bytes of the closed block that the address lay in.
  [[nodiscard]] std::optional<std::size_t> find_closed(const void* address) const;
  [[nodiscard]] std::optional<Import> find(const void* address) const;
  [[nodiscard]] std::string describe(const Import& import, const void* address) const;

 private:
  mutable std::mutex mutex_;
  std::map<const std::byte*, Import> imports_;
  std::deque<std::span<std::byte>> closed_;
};

}  // namespace vgpu
