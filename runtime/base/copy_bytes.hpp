// std::memmove for large arrays, at the speed of the caches on every processor.
//
// The C library copies more than some KiB by `rep movsb`, and on a Zen 4 that does 2 GB/s where
// loads and stores do 20 (glibc's bug 30994: source and destination at like places of their pages).
// Communication copies exactly such arrays, from pages into slots, all the time.
#pragma once

#include <cstddef>

namespace ringsmith {

// The arrays may overlap, and of 0 bytes may have no address.
void copy_bytes(void* to, const void* from, std::size_t bytes);

}  // namespace ringsmith
