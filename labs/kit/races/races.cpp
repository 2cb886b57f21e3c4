#include "labs/kit/races/races.hpp"

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <new>
#include <pthread.h>

// The compiler inserts a call to one of the hooks (at the end of this file) before every memory
// access, even in this file, except in functions with this attribute. Therefore nothing here uses
// the standard library's templates, which lack the attribute.
#define UNSEEN __attribute__((no_sanitize("thread")))

namespace {

constexpr int most_threads = 24, most_blocks = 64, most_objects = 4096;
constexpr std::size_t most_bytes = 1 << 15;

struct Clock {
  std::uint32_t at[most_threads];
};
struct Byte {  // its last writer and its readers, with their times
  std::uint32_t read[most_threads];
  std::uint32_t written;
  int writer;
};
struct Block {
  std::uintptr_t first, last;
  std::size_t shadow;
};
struct Object {  // a mutex, an atomic, a thread
  std::uintptr_t key;
  Clock clock;
};

bool watching = false;
char busy = 0;  // a spin lock, because a mutex would call this library
Block blocks[most_blocks];
int block_count = 0;
std::size_t used = 0;
std::uintptr_t lowest = UINTPTR_MAX, highest = 0;
Byte bytes_seen[most_bytes];
Object objects[most_objects];
int thread_count = 0;
const char* found = nullptr;
long run = 0;

thread_local int self = -1;
thread_local long self_run = 0;
thread_local Clock now;
thread_local bool allocations = false;

UNSEEN void lock() {
  while (__atomic_test_and_set(&busy, __ATOMIC_ACQUIRE))
    ;
}
UNSEEN void unlock() { __atomic_clear(&busy, __ATOMIC_RELEASE); }

// Gives this thread a number in the current watch. Returns false if there are too many threads.
UNSEEN bool known() {
  if (self_run != run) {
    self_run = run;
    self = thread_count < most_threads ? thread_count++ : -1;
    std::memset(&now, 0, sizeof now);
    if (self >= 0) now.at[self] = 1;
  }
  return self >= 0;
}

UNSEEN Object* object(const void* at) {
  const auto key = reinterpret_cast<std::uintptr_t>(at);
  for (std::size_t i = (key >> 3) * 2654435761U % most_objects, tries = 0; tries < most_objects;
       ++tries, i = (i + 1) % most_objects) {
    if (objects[i].key == 0) objects[i].key = key;
    if (objects[i].key == key) return &objects[i];
  }
  watching = false;  // too many objects: report nothing rather than a false race
  return nullptr;
}
UNSEEN void join(Clock& into, const Clock& other) {
  for (int t = 0; t < most_threads; ++t)
    if (other.at[t] > into.at[t]) into.at[t] = other.at[t];
}
UNSEEN void acquire(const void* at) {
  if (!watching) return;
  lock();
  if (watching && known())
    if (const Object* const o = object(at)) join(now, o->clock);
  unlock();
}
UNSEEN void release(const void* at) {
  if (!watching) return;
  lock();
  if (watching && known())
    if (Object* const o = object(at)) {
      join(o->clock, now);
      ++now.at[self];
    }
  unlock();
}

UNSEEN void look(Byte& byte, bool writes) {
  if (byte.written > 0 && byte.writer != self && byte.written > now.at[byte.writer])
    found = writes ? "two threads write the same bytes" : "a thread reads what another one writes";
  for (int t = 0; writes && t < most_threads; ++t)
    if (t != self && byte.read[t] > now.at[t]) found = "a thread writes what another one reads";
  if (writes) {
    byte.writer = self;
    byte.written = now.at[self];
  } else {
    byte.read[self] = now.at[self];
  }
}
UNSEEN void access(const void* at, std::size_t size, bool writes) {
  const auto first = reinterpret_cast<std::uintptr_t>(at);
  if (!watching || first >= highest || first + size <= lowest) return;
  lock();
  if (watching && found == nullptr && known())
    for (int b = 0; b < block_count; ++b)
      for (std::uintptr_t a = first; a < first + size; ++a)
        if (a >= blocks[b].first && a < blocks[b].last)
          look(bytes_seen[blocks[b].shadow + (a - blocks[b].first)], writes);
  unlock();
}

UNSEEN void watch(const void* at, std::size_t size) {
  const auto first = reinterpret_cast<std::uintptr_t>(at);
  if (block_count == most_blocks || used + size > most_bytes) return;
  blocks[block_count++] = {first, first + size, used};
  used += size;
  if (first < lowest) lowest = first;
  if (first + size > highest) highest = first + size;
}
UNSEEN void forget(const void* at) {
  const auto first = reinterpret_cast<std::uintptr_t>(at);
  for (int b = 0; b < block_count; ++b)
    if (blocks[b].first == first) blocks[b].last = first;
}

template <class Function>
UNSEEN Function next(Function, const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

struct Start {
  void* (*body)(void*);
  void* argument;
};
UNSEEN void* begin_thread(void* raw) {
  const Start start = *static_cast<Start*>(raw);
  acquire(raw);
  std::free(raw);
  void* const result = start.body(start.argument);
  release(reinterpret_cast<const void*>(pthread_self()));
  return result;
}

}  // namespace

namespace kit::races {

UNSEEN void begin(const void* first, std::size_t bytes) {
  lock();
  ++run;
  thread_count = 0;
  block_count = 0;
  used = 0;
  lowest = UINTPTR_MAX;
  highest = 0;
  found = nullptr;
  std::memset(bytes_seen, 0, sizeof bytes_seen);
  std::memset(objects, 0, sizeof objects);
  watch(first, bytes);
  allocations = watching = true;
  unlock();
}
UNSEEN void end_of_allocations() { allocations = false; }
UNSEEN std::string end() {
  watching = allocations = false;
  return found == nullptr ? "" : found;
}

}  // namespace kit::races

// These operators start and stop watching the allocations of the student's objects.
UNSEEN void* operator new(std::size_t size) {
  void* const at = std::malloc(size == 0 ? 1 : size);
  if (at == nullptr) throw std::bad_alloc();
  if (allocations) {
    lock();
    watch(at, size);
    unlock();
  }
  return at;
}
UNSEEN void operator delete(void* at) noexcept {
  if (watching && at != nullptr) {
    lock();
    forget(at);
    unlock();
  }
  std::free(at);
}
UNSEEN void operator delete(void* at, std::size_t) noexcept { operator delete(at); }

// Functions that order threads. Each replaces the C library's function and calls the original.
#define REAL(name) static const auto real = next(&name, #name)
extern "C" {
UNSEEN int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  REAL(pthread_mutex_lock);
  const int error = real(mutex);
  acquire(mutex);
  return error;
}
UNSEEN int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  REAL(pthread_mutex_trylock);
  const int error = real(mutex);
  if (error == 0) acquire(mutex);
  return error;
}
UNSEEN int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  REAL(pthread_mutex_unlock);
  release(mutex);
  return real(mutex);
}
UNSEEN int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  REAL(pthread_cond_wait);
  release(mutex);
  const int error = real(condition, mutex);
  acquire(mutex);
  return error;
}
UNSEEN int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                  const timespec* until) {
  REAL(pthread_cond_timedwait);
  release(mutex);
  const int error = real(condition, mutex, until);
  acquire(mutex);
  return error;
}
UNSEEN int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                  clockid_t clock, const timespec* until) {
  REAL(pthread_cond_clockwait);
  release(mutex);
  const int error = real(condition, mutex, clock, until);
  acquire(mutex);
  return error;
}
UNSEEN int pthread_rwlock_rdlock(pthread_rwlock_t* mutex) noexcept {
  REAL(pthread_rwlock_rdlock);
  const int error = real(mutex);
  acquire(mutex);
  return error;
}
UNSEEN int pthread_rwlock_wrlock(pthread_rwlock_t* mutex) noexcept {
  REAL(pthread_rwlock_wrlock);
  const int error = real(mutex);
  acquire(mutex);
  return error;
}
UNSEEN int pthread_rwlock_unlock(pthread_rwlock_t* mutex) noexcept {
  REAL(pthread_rwlock_unlock);
  release(mutex);
  return real(mutex);
}
UNSEEN int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                          void* argument) noexcept {
  REAL(pthread_create);
  auto* const start = static_cast<Start*>(std::malloc(sizeof(Start)));
  if (start == nullptr) return ENOMEM;
  *start = {body, argument};
  release(start);
  return real(thread, attributes, begin_thread, start);
}
UNSEEN int pthread_join(pthread_t thread, void** result) {
  REAL(pthread_join);
  const int error = real(thread, result);
  acquire(reinterpret_cast<const void*>(thread));
  return error;
}

// The hooks that the compiler calls.
UNSEEN void __tsan_init() {}
UNSEEN void __tsan_func_entry(void*) {}
UNSEEN void __tsan_func_exit() {}
UNSEEN void __tsan_vptr_update(void** at, void*) { access(at, sizeof *at, true); }
UNSEEN void __tsan_vptr_read(void** at) { access(at, sizeof *at, false); }
UNSEEN void* __tsan_memcpy(void* to, const void* from, std::size_t size) {  // clang's
  access(from, size, false);
  access(to, size, true);
  return std::memcpy(to, from, size);
}
UNSEEN void* __tsan_memmove(void* to, const void* from, std::size_t size) {
  access(from, size, false);
  access(to, size, true);
  return std::memmove(to, from, size);
}
UNSEEN void* __tsan_memset(void* to, int value, std::size_t size) {
  access(to, size, true);
  return std::memset(to, value, size);
}
UNSEEN void __tsan_read_range(void* at, std::size_t size) { access(at, size, false); }
UNSEEN void __tsan_write_range(void* at, std::size_t size) { access(at, size, true); }
UNSEEN void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
UNSEEN void __tsan_atomic_signal_fence(int) {}
#define PLAIN(size)                                                              \
  UNSEEN void __tsan_read##size(void* at) { access(at, size, false); }           \
  UNSEEN void __tsan_write##size(void* at) { access(at, size, true); }           \
  UNSEEN void __tsan_unaligned_read##size(void* at) { access(at, size, false); } \
  UNSEEN void __tsan_unaligned_write##size(void* at) { access(at, size, true); }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)
#define CHANGE(bits, T, name)                                        \
  UNSEEN T __tsan_atomic##bits##_##name(volatile T* at, T by, int) { \
    release(const_cast<T*>(at));                                     \
    const T before = __atomic_##name(at, by, __ATOMIC_SEQ_CST);      \
    acquire(const_cast<T*>(at));                                     \
    return before;                                                   \
  }
#define EXCHANGE(bits, T, name)                                                                  \
  UNSEEN int __tsan_atomic##bits##_##name(volatile T* at, T* expected, T wanted, int, int) {     \
    release(const_cast<T*>(at));                                                                 \
    const bool done = __atomic_compare_exchange_n(at, expected, wanted, false, __ATOMIC_SEQ_CST, \
                                                  __ATOMIC_SEQ_CST);                             \
    acquire(const_cast<T*>(at));                                                                 \
    return done;                                                                                 \
  }
#define ATOMIC(bits, T)                                                   \
  UNSEEN T __tsan_atomic##bits##_load(const volatile T* at, int) {        \
    const T value = __atomic_load_n(at, __ATOMIC_SEQ_CST);                \
    acquire(const_cast<const T*>(at));                                    \
    return value;                                                         \
  }                                                                       \
  UNSEEN void __tsan_atomic##bits##_store(volatile T* at, T value, int) { \
    release(const_cast<T*>(at));                                          \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                        \
  }                                                                       \
  UNSEEN T __tsan_atomic##bits##_exchange(volatile T* at, T by, int) {    \
    release(const_cast<T*>(at));                                          \
    const T before = __atomic_exchange_n(at, by, __ATOMIC_SEQ_CST);       \
    acquire(const_cast<T*>(at));                                          \
    return before;                                                        \
  }                                                                       \
  CHANGE(bits, T, fetch_add)                                              \
  CHANGE(bits, T, fetch_sub)                                              \
  CHANGE(bits, T, fetch_and)                                              \
  CHANGE(bits, T, fetch_or)                                               \
  CHANGE(bits, T, fetch_xor)                                              \
  CHANGE(bits, T, fetch_nand)                                             \
  EXCHANGE(bits, T, compare_exchange_strong)                              \
  EXCHANGE(bits, T, compare_exchange_weak)
ATOMIC(8, std::uint8_t)
ATOMIC(16, std::uint16_t)
ATOMIC(32, std::uint32_t)
ATOMIC(64, std::uint64_t)

}  // extern "C"
