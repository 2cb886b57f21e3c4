// Fibers: stacks that take turns on one OS thread, switched by Boost.Context in a few nanoseconds.
//
// Every switch is announced to AddressSanitizer, because it keeps the bounds of the current stack.
// ThreadSanitizer sees each fiber as a separate thread whose switches do not order anything.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/vgpu/order.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define VGPU_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define VGPU_ASAN
#endif
#endif
#ifdef VGPU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef VGPU_TSAN  // code that runs between two fibers must not be instrumented
#define VGPU_SWITCH __attribute__((noinline, no_sanitize("thread")))
#else
#define VGPU_SWITCH [[gnu::always_inline]]
#endif

namespace vgpu {

struct Fiber {
  void* context = nullptr;  // where it resumes, set by the fiber that it switched to
  std::byte* stack = nullptr;
  std::size_t stack_bytes = 0;
  void* asan_stack = nullptr;
  void* tsan_fiber = nullptr;
  void (*entry)(Fiber* self) = nullptr;
};

extern constinit thread_local Fiber* arriving;  // target of the last switch

// Suspends `from`, the running fiber, and returns when another fiber switches back to it. This
// function and all others between a kernel and the switch are inline, because after a switch the
// processor mispredicts every return.
VGPU_SWITCH inline void switch_fiber(Fiber& from, Fiber& to) {
  arriving = &to;
#ifdef VGPU_ASAN
  __sanitizer_start_switch_fiber(&from.asan_stack, to.stack, to.stack_bytes);
#endif
#ifdef VGPU_TSAN
  __tsan_switch_to_fiber(to.tsan_fiber, 1);  // 1: the switch itself orders nothing
#endif
  const boost::context::detail::transfer_t back =
      boost::context::detail::jump_fcontext(to.context, &from);
  static_cast<Fiber*>(back.data)->context = back.fctx;
#ifdef VGPU_ASAN
  __sanitizer_finish_switch_fiber(from.asan_stack, nullptr, nullptr);
#endif
}

// Creates fibers as needed and keeps them for reuse. The address of a fiber does not change.
class FiberPool {
 public:
  using Entry = void (*)(Fiber* self);
  // Every fiber starts in `entry`, which must never return.
  explicit FiberPool(Entry entry);
  FiberPool(const FiberPool&) = delete;
  FiberPool& operator=(const FiberPool&) = delete;
  ~FiberPool();

  // The OS thread's own stack.
  Fiber& host() { return host_; }
  Fiber* make();
  // A suspended fiber starts from the top when it is next switched to.
  void restart(Fiber& fiber);
  // The guard below each group of stacks and the pattern at the end of each stack detect recursion
  // and large local arrays. False if the pattern has been overwritten.
  [[nodiscard]] static bool intact(const Fiber& fiber);
  [[nodiscard]] bool in_guard(const void* address) const;
  // Names the fiber in ThreadSanitizer's reports.
  static void name(Fiber& fiber, const char* text);

  static constexpr std::size_t kStackBytes = 64 << 10;

 private:
  static constexpr std::size_t kGroup = 32;  // stacks that are mapped together: a warp
  Entry entry_;
  Fiber host_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<void*> groups_;
};

}  // namespace vgpu
