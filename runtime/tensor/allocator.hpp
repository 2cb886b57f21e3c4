// The caching host allocator: memory of tensors is kept and reused, not returned to the system.
//
// A training step allocates the same sizes again and again. Fresh pages from the system cost a page
// fault for every 4 KiB; a block from the cache costs a list operation. Every size class
// (runtime/base/allocator.hpp) has a list of free blocks. Blocks are aligned to 64 bytes, from 4
// MiB on to 2 MiB with a request for huge pages. Thread-safe. Under AddressSanitizer free blocks
// are poisoned, so that a use after free is found.
#pragma once

#include <cstddef>

#include "runtime/base/allocator.hpp"

namespace ringsmith {

namespace host_allocator {

inline constexpr std::size_t kAlignment = 64;

// Never null, also for zero bytes. Error if the system has no memory left.
[[nodiscard]] std::byte* allocate(Bytes size);
void free(std::byte* block, Bytes size);  // size as given to allocate()
[[nodiscard]] AllocatorStats stats();
void reset_peak();      // peak becomes current
void release_cached();  // gives the free blocks back to the system
// The size that a request is rounded up to.
[[nodiscard]] Bytes class_size(Bytes size);

}  // namespace host_allocator
}  // namespace ringsmith
