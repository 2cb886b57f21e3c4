#include "tests/memory_order/instrumented.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

extern "C" {
void* __real_memcpy(void*, const void*, std::size_t);
void* __real_memmove(void*, const void*, std::size_t);
void* __real_memset(void*, int, std::size_t);
}

namespace explorer::instrumented {
namespace {

struct Region {
  std::uintptr_t begin, end;
  const char* name;
};
std::vector<Region> regions;
std::vector<std::pair<std::uintptr_t, const char*>> names;

// A region's address differs between executions, so a key identifies the region and the offset.
struct Watched {
  Key key = 0;
  const Region* region = nullptr;
  std::int64_t index = 0;
};
Watched find(const volatile void* p) {
  if (!exploring()) return {};
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  for (std::size_t i = 0; i < regions.size(); ++i)
    if (at >= regions[i].begin && at < regions[i].end)
      return {Key{1} << 62 | Key{i} << 40 | (at - regions[i].begin), &regions[i],
              std::int64_t(at - regions[i].begin)};
  return {};
}

template <class T>
Key declared_key(const volatile T* p) {
  const Watched w = find(p);
  if (w.region == nullptr) return 0;
  if (!declared(w.key)) {
    std::string text = std::string(w.region->name) + "[" + std::to_string(w.index) + "]";
    for (const auto& [at, given] : names)
      if (at == reinterpret_cast<std::uintptr_t>(p)) text = given;
    declare(w.key, text, *p);
  }
  return w.key;
}

// All loads get this one source location, so any two loads in a row count as a wait. Real locations
// would not do, because a compiler may split the first iteration off a polling loop.
const char anywhere = 0;

Order order_of(int order) {
  switch (order) {
    case __ATOMIC_RELAXED:
      return relaxed;
    case __ATOMIC_CONSUME:
    case __ATOMIC_ACQUIRE:
      return acquire;
    case __ATOMIC_RELEASE:
      return release;
    case __ATOMIC_ACQ_REL:
      return acq_rel;
    default:
      return seq_cst;
  }
}

}  // namespace

void forget() {
  regions.clear();
  names.clear();
}
void watch(const void* begin, std::size_t bytes, const char* name) {
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  regions.push_back({at, at + bytes, name});
}
void name(const void* atomic, const char* name) {
  names.emplace_back(reinterpret_cast<std::uintptr_t>(atomic), name);
}

void plain_access(const volatile void* p, std::size_t bytes, bool write) {
  const Watched w = find(p);
  if (w.region == nullptr) return;
  if (write || bytes > sizeof(Value))
    return touch(w.key, bytes, write, w.region->name, w.index, nullptr);
  Value shown = 0;
  __real_memcpy(&shown, const_cast<const void*>(p), bytes);
  touch(w.key, bytes, write, w.region->name, w.index, &shown);
}

template <class T>
T atomic_load(const volatile T* p, int order, Site site) {
  const Key key = declared_key(p);
  if (key == 0) return __atomic_load_n(p, __ATOMIC_SEQ_CST);
  return static_cast<T>(load(key, order_of(order), site, sizeof(T)));
}
template <class T>
void atomic_store(volatile T* p, T value, int order) {
  const Key key = declared_key(p);
  if (key == 0) return __atomic_store_n(p, value, __ATOMIC_SEQ_CST);
  store(key, value, order_of(order), sizeof(T));
}
template <class T, class F>
T atomic_update(volatile T* p, const char* what, int order, F next) {
  const Key key = declared_key(p);
  if (key == 0) {
    T old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(p, &old, next(old), false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
    }
    return old;
  }
  return static_cast<T>(update(
      key, what,
      [&](Value before, Value& after) {
        after = next(static_cast<T>(before));
        return true;
      },
      order_of(order)));
}
template <class T>
bool atomic_compare_exchange(volatile T* p, T* expected, T desired, int order, int if_not) {
  const Key key = declared_key(p);
  if (key == 0)
    return __atomic_compare_exchange_n(p, expected, desired, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
  const T wanted = *expected;
  *expected = static_cast<T>(update(
      key, "compare_exchange",
      [&](Value before, Value& after) {
        after = desired;
        return static_cast<T>(before) == wanted;
      },
      order_of(order), order_of(if_not)));
  return *expected == wanted;
}

}  // namespace explorer::instrumented

namespace hooks = explorer::instrumented;

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_read_range(void* p, unsigned long n) { hooks::plain_access(p, n, false); }
void __tsan_write_range(void* p, unsigned long n) { hooks::plain_access(p, n, true); }

#define PLAIN(N)                                                               \
  void __tsan_read##N(void* p) { hooks::plain_access(p, N, false); }           \
  void __tsan_write##N(void* p) { hooks::plain_access(p, N, true); }           \
  void __tsan_unaligned_read##N(void* p) { hooks::plain_access(p, N, false); } \
  void __tsan_unaligned_write##N(void* p) { hooks::plain_access(p, N, true); }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)
#undef PLAIN

#define ATOMIC(BITS, T)                                                                        \
  T __tsan_atomic##BITS##_load(const volatile T* p, int order) {                               \
    return hooks::atomic_load(p, order, &hooks::anywhere);                                     \
  }                                                                                            \
  void __tsan_atomic##BITS##_store(volatile T* p, T v, int order) {                            \
    hooks::atomic_store(p, v, order);                                                          \
  }                                                                                            \
  T __tsan_atomic##BITS##_exchange(volatile T* p, T v, int order) {                            \
    return hooks::atomic_update(p, "exchange", order, [v](T) { return v; });                   \
  }                                                                                            \
  T __tsan_atomic##BITS##_fetch_add(volatile T* p, T v, int order) {                           \
    return hooks::atomic_update(p, "fetch_add", order, [v](T old) { return T(old + v); });     \
  }                                                                                            \
  T __tsan_atomic##BITS##_fetch_sub(volatile T* p, T v, int order) {                           \
    return hooks::atomic_update(p, "fetch_sub", order, [v](T old) { return T(old - v); });     \
  }                                                                                            \
  T __tsan_atomic##BITS##_fetch_and(volatile T* p, T v, int order) {                           \
    return hooks::atomic_update(p, "fetch_and", order, [v](T old) { return T(old & v); });     \
  }                                                                                            \
  T __tsan_atomic##BITS##_fetch_or(volatile T* p, T v, int order) {                            \
    return hooks::atomic_update(p, "fetch_or", order, [v](T old) { return T(old | v); });      \
  }                                                                                            \
  int __tsan_atomic##BITS##_compare_exchange_strong(volatile T* p, T* c, T v, int o, int o2) { \
    return hooks::atomic_compare_exchange(p, c, v, o, o2);                                     \
  }                                                                                            \
  int __tsan_atomic##BITS##_compare_exchange_weak(volatile T* p, T* c, T v, int o, int o2) {   \
    return hooks::atomic_compare_exchange(p, c, v, o, o2);                                     \
  }                                                                                            \
  T __tsan_atomic##BITS##_compare_exchange_val(volatile T* p, T c, T v, int o, int o2) {       \
    hooks::atomic_compare_exchange(p, &c, v, o, o2);                                           \
    return c;                                                                                  \
  }
ATOMIC(8, std::uint8_t)
ATOMIC(16, std::uint16_t)
ATOMIC(32, std::uint32_t)
ATOMIC(64, std::uint64_t)
#undef ATOMIC

void __tsan_atomic_thread_fence(int order) {
  if (explorer::exploring()) explorer::fence(hooks::order_of(order));
}
void __tsan_atomic_signal_fence(int) {}

// The linker redirects the program's own calls to these functions (-Wl,--wrap).
void* __wrap_memcpy(void* to, const void* from, std::size_t n) {
  if (n > 0) hooks::plain_access(from, n, false), hooks::plain_access(to, n, true);
  return __real_memcpy(to, from, n);
}
void* __wrap_memmove(void* to, const void* from, std::size_t n) {
  if (n > 0) hooks::plain_access(from, n, false), hooks::plain_access(to, n, true);
  return __real_memmove(to, from, n);
}
void* __wrap_memset(void* to, int value, std::size_t n) {
  if (n > 0) hooks::plain_access(to, n, true);
  return __real_memset(to, value, n);
}
// clang's names for these functions.
void* __tsan_memcpy(void* to, const void* from, std::size_t n) {
  return __wrap_memcpy(to, from, n);
}
void* __tsan_memmove(void* to, const void* from, std::size_t n) {
  return __wrap_memmove(to, from, n);
}
void* __tsan_memset(void* to, int value, std::size_t n) { return __wrap_memset(to, value, n); }
}
