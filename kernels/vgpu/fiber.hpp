// Fibers: stacks that take turns on one OS thread, switched by Boost.Context in a few nanoseconds.
//
// AddressSanitizer is told about every switch (it keeps the bounds of the current stack), and
// ThreadSanitizer sees each fiber as a thread of its own whose switches order nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace vgpu {

struct Fiber {
  void* context = nullptr;  // where it goes on; set by whom it switched to
  std::byte* stack = nullptr;
  std::size_t stack_bytes = 0;
  void* asan_stack = nullptr;
  void* tsan_fiber = nullptr;
  void (*entry)(Fiber* self) = nullptr;
};

// Suspends `from`, the running fiber; returns when something switches back to it.
void switch_fiber(Fiber& from, Fiber& to);

// The fibers of one OS thread, made as needed and kept. Their addresses do not change.
class FiberPool {
 public:
  using Entry = void (*)(Fiber* self);
  // Every fiber starts in entry, which never returns.
  explicit FiberPool(Entry entry);
  FiberPool(const FiberPool&) = delete;
  FiberPool& operator=(const FiberPool&) = delete;
  ~FiberPool();

  // Stands for the OS thread's own stack.
  Fiber& host() { return host_; }
  Fiber* make();
  // A fiber that was left in the middle starts from the top when it is next switched to.
  void restart(Fiber& fiber);
  // The guard below each group of stacks and the pattern at the end of each one catch recursion and
  // big local arrays: false if the pattern is gone.
  [[nodiscard]] static bool intact(const Fiber& fiber);
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
