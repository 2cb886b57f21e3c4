// malloc and its relatives, which replace the C library's functions and call them. operator new
// calls malloc.
#include "labs/kit/heap/held.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <malloc.h>

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* old);
}

namespace {

thread_local std::int64_t bytes = 0;
std::atomic<std::int64_t> all = 0, most = 0;

void change(std::int64_t by) {
  bytes += by;
  const std::int64_t now = all += by;
  for (std::int64_t seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
  }
}
void* taken(void* p) {
  if (p != nullptr) change(std::int64_t(malloc_usable_size(p)));
  return p;
}
void given(void* p) {
  if (p != nullptr) change(-std::int64_t(malloc_usable_size(p)));
}

}  // namespace

namespace kit {
std::int64_t heap_of_thread() { return bytes; }
std::int64_t heap() { return all; }
std::int64_t heap_most() { return most; }
void heap_forget_most() { most = all.load(); }
}  // namespace kit

extern "C" {
void* malloc(std::size_t size) noexcept { return taken(__libc_malloc(size)); }
void* calloc(std::size_t count, std::size_t size) noexcept {
  return taken(__libc_calloc(count, size));
}
void free(void* old) noexcept {
  given(old);
  __libc_free(old);
}
void* realloc(void* old, std::size_t size) noexcept {
  const auto before = old == nullptr ? 0 : std::int64_t(malloc_usable_size(old));
  void* const p = __libc_realloc(old, size);
  if (p != nullptr || size == 0) change(-before);  // else old is still there
  return taken(p);
}
void* reallocarray(void* old, std::size_t count, std::size_t size) noexcept {
  std::size_t all = 0;
  if (!__builtin_mul_overflow(count, size, &all)) return realloc(old, all);
  errno = ENOMEM;
  return nullptr;
}
void* memalign(std::size_t alignment, std::size_t size) noexcept {
  return taken(__libc_memalign(alignment, size));
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  return memalign(alignment, size);
}
int posix_memalign(void** p, std::size_t alignment, std::size_t size) noexcept {
  if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0)
    return EINVAL;
  void* const made = memalign(alignment, size);
  if (made == nullptr) return ENOMEM;
  *p = made;
  return 0;
}
}
