#include "kernels/vgpu/imports.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include "kernels/vgpu/device.hpp"
#include "kernels/vgpu/guard_page.hpp"
#include "kernels/vgpu/rights.hpp"

namespace vgpu {

namespace {
constexpr std::size_t kClosedKept = 64;  // blocks
}  // namespace

Imports& Imports::get() {
  static auto* imports = new Imports;
  return *imports;
}

void* Imports::open(const MemoryName& name, int device, std::string& reason) {
  const std::scoped_lock lock(mutex_);
  for (auto& [start, import] : imports_)
    if (import.name == name && import.device == device) {
      ++import.opened;
      return import.start;
    }
  const int file = ask(name.exporter, {Request::What::memory, name.device, name.offset}, reason);
  if (file < 0) return nullptr;
  void* at = ::mmap(nullptr, name.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                    static_cast<off_t>(name.offset));
  ::close(file);
  if (at == MAP_FAILED) {
    reason = "no address space for " + std::to_string(name.bytes) + " bytes";
    return nullptr;
  }
  auto* start = static_cast<std::byte*>(at);
  const std::size_t guard = name.small != 0 ? guard_page() : 0;  // as in the exporter
  if (guard != 0) ::mprotect(start, guard, PROT_NONE);
  give_key(start + guard, name.bytes - guard, Device::get(device).key());
  imports_[start] = {start, name.bytes, device, name, 1};
  return at;
}

bool Imports::close(void* start) {
  const std::scoped_lock lock(mutex_);
  const auto it = imports_.find(static_cast<std::byte*>(start));
  if (it == imports_.end()) return false;
  if (--it->second.opened > 0) return true;
  take_key(it->second.start + (it->second.name.small != 0 ? guard_page() : 0));
  const std::size_t bytes = it->second.bytes;
  imports_.erase(it);
  if (::mmap(start, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0) == MAP_FAILED) {
    ::munmap(start, bytes);
    return true;
  }
  closed_.emplace_back(static_cast<std::byte*>(start), bytes);
  if (closed_.size() > kClosedKept) {
    ::munmap(closed_.front().data(), closed_.front().size());
    closed_.pop_front();
  }
  return true;
}

std::optional<std::size_t> Imports::find_closed(const void* address) const {
  const auto* p = static_cast<const std::byte*>(address);
  const std::scoped_lock lock(mutex_);
  for (const auto block : closed_)
    if (p >= block.data() && p < block.data() + block.size()) return block.size();
  return {};
}

std::optional<Imports::Import> Imports::find(const void* address) const {
  const auto* p = static_cast<const std::byte*>(address);
  const std::scoped_lock lock(mutex_);
  const auto it = imports_.upper_bound(p);
  if (it == imports_.begin()) return {};
  const Import& import = std::prev(it)->second;
  if (p >= import.start + import.bytes) return {};
  return import;
}

std::string Imports::describe(const Import& import, const void* address) const {
  return "memory of process " + std::to_string(import.name.exporter.process) +
         ", opened on device " + std::to_string(import.device) + " (block of " +
         std::to_string(import.bytes) + " bytes) + " +
         std::to_string(static_cast<const std::byte*>(address) - import.start);
}

}  // namespace vgpu
