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

struct MemoryName {  // the contents of a cudaIpcMemHandle_t
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
    int device = 0;  // the device for which the block was opened
    MemoryName name;
    int opened = 0;  // number of open() calls without a close()
  };
  static Imports& get();
  // Returns null and sets `reason` if the exporter does not provide the block, or if mapping fails.
  void* open(const MemoryName& name, int device, std::string& reason);
  // Returns false if no block is open at `start`. The addresses of the most recently closed blocks
  // remain inaccessible and are not reused.
  bool close(void* start);
  // Returns the size of the recently closed block that contained the address, if any.
  [[nodiscard]] std::optional<std::size_t> find_closed(const void* address) const;
  [[nodiscard]] std::optional<Import> find(const void* address) const;
  [[nodiscard]] std::string describe(const Import& import, const void* address) const;

 private:
  mutable std::mutex mutex_;
  std::map<const std::byte*, Import> imports_;
  std::deque<std::span<std::byte>> closed_;
};

}  // namespace vgpu
