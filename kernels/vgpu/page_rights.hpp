// Rights to device memory by whole pages, where the processor has no memory protection keys and
// VGPU_GUARD=pages asks for them.
//
// The memory of a device is closed (PROT_NONE) while nobody has its key, and open to all threads
// while somebody has: a kernel or a copy that runs. So a host that reaches in while its device is
// at work is not seen, and neither is a device that is no peer while the owner is at work. Every
// operation of a stream costs two calls of the system for each living allocation of its devices,
// and each walks its pages: with megabytes of them, or several processes on few cores, most of the
// time is spent here. So this is for tests of that very mistake, and not the default.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vgpu::page_rights {

// A new number of a key, 1 to 31, or -1 if there is none left.
int new_key();

// From now on these pages, an allocation's, are closed while nobody has the key.
void add(std::byte* at, std::size_t bytes, int key);
void remove(std::byte* at);  // they are about to be unmapped

// Somebody has the keys (bit k: key k) from begin to end.
void begin(std::uint32_t keys);
void end(std::uint32_t keys);

// Whether a key guards the address.
[[nodiscard]] bool guards(const void* address);

}  // namespace vgpu::page_rights
