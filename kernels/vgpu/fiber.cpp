#include "kernels/vgpu/fiber.hpp"

#include <cstdint>
#include <cstring>
#include <pthread.h>
#include <sys/mman.h>

#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/settings.hpp"

namespace context = boost::context::detail;

namespace vgpu {

constinit thread_local Fiber* arriving = nullptr;

namespace {

// Offsets the tops of the stacks, because equally aligned stacks would compete for the same cache
// sets.
constexpr std::size_t kGap = 64 + 128, kMostGap = 4096;
constexpr std::uint64_t kStackPattern = 0x5afe57acc0ffee11U;

void first_entry(context::transfer_t back) {
  const Quiet quiet;
  Fiber* self = arriving;
  static_cast<Fiber*>(back.data)->context = back.fctx;
#ifdef VGPU_ASAN
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  self->entry(self);
}

}  // namespace

FiberPool::FiberPool(Entry entry) : entry_(entry) {
  pthread_attr_t attributes;
  void* low = nullptr;
  std::size_t bytes = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
    pthread_attr_getstack(&attributes, &low, &bytes);
    pthread_attr_destroy(&attributes);
  }
  host_.stack = static_cast<std::byte*>(low);
  host_.stack_bytes = bytes;
#ifdef VGPU_TSAN
  host_.tsan_fiber = __tsan_get_current_fiber();
#endif
}

FiberPool::~FiberPool() {
  for ([[maybe_unused]] const auto& f : fibers_) {
#ifdef VGPU_TSAN
    __tsan_destroy_fiber(f->tsan_fiber);
#endif
#ifdef VGPU_ASAN
    ASAN_UNPOISON_MEMORY_REGION(f->stack, f->stack_bytes);
#endif
  }
  for (void* group : groups_) ::munmap(group, guard_page() + kGroup * kStackBytes);
}

Fiber* FiberPool::make() {
  const std::size_t number = fibers_.size();
  if (number % kGroup == 0) {
    void* group = ::mmap(nullptr, guard_page() + kGroup * kStackBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (group == MAP_FAILED) fatal("no memory for the stacks of a block's threads");
    ::mprotect(group, guard_page(), PROT_NONE);
    groups_.push_back(group);
  }
  auto fiber = std::make_unique<Fiber>();
  fiber->stack =
      static_cast<std::byte*>(groups_.back()) + guard_page() + (number % kGroup) * kStackBytes;
  fiber->stack_bytes = kStackBytes - (number * kGap) % kMostGap;
  std::memcpy(fiber->stack, &kStackPattern, sizeof kStackPattern);
#ifdef VGPU_TSAN
  fiber->tsan_fiber = __tsan_create_fiber(0);
#endif
  restart(*fiber);
  fibers_.push_back(std::move(fiber));
  return fibers_.back().get();
}

void FiberPool::restart(Fiber& fiber) {
#ifdef VGPU_ASAN
  ASAN_UNPOISON_MEMORY_REGION(fiber.stack, fiber.stack_bytes);
#endif
  fiber.asan_stack = nullptr;
  fiber.entry = entry_;
  fiber.context =
      context::make_fcontext(fiber.stack + fiber.stack_bytes, fiber.stack_bytes, first_entry);
}

void FiberPool::name([[maybe_unused]] Fiber& fiber, [[maybe_unused]] const char* text) {
#ifdef VGPU_TSAN
  __tsan_set_fiber_name(fiber.tsan_fiber, text);
#endif
}

bool FiberPool::in_guard(const void* address) const {
  for (const void* group : groups_) {
    const auto distance =
        static_cast<const std::byte*>(address) - static_cast<const std::byte*>(group);
    if (distance >= 0 && distance < static_cast<std::ptrdiff_t>(guard_page())) return true;
  }
  return false;
}

bool FiberPool::intact(const Fiber& fiber) {
  return std::memcmp(fiber.stack, &kStackPattern, sizeof kStackPattern) == 0;
}

}  // namespace vgpu
