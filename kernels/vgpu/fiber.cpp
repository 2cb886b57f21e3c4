#include "kernels/vgpu/fiber.hpp"

#include <boost/context/detail/fcontext.hpp>
#include <cstdint>
#include <cstring>
#include <pthread.h>
#include <sys/mman.h>

#include "kernels/vgpu/error.hpp"
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

namespace context = boost::context::detail;

namespace vgpu {

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kGap = 64 + 128;  // stacks of equal alignment would fight for one cache set
constexpr std::uint64_t kPattern = 0x5afe57acc0ffee11U;

void finish_switch([[maybe_unused]] Fiber& self) {
#ifdef VGPU_ASAN
  __sanitizer_finish_switch_fiber(self.asan_stack, nullptr, nullptr);
#endif
}

thread_local Fiber* arriving;  // whom the last switch was to

void begin(context::transfer_t back) {
  Fiber* self = arriving;
  static_cast<Fiber*>(back.data)->context = back.fctx;
  finish_switch(*self);
  self->entry(self);
}

}  // namespace

void switch_fiber(Fiber& from, Fiber& to) {
#ifdef VGPU_ASAN
  __sanitizer_start_switch_fiber(&from.asan_stack, to.stack, to.stack_bytes);
#endif
#ifdef VGPU_TSAN
  __tsan_switch_to_fiber(to.tsan_fiber, 1);  // 1: the switch itself orders nothing
#endif
  arriving = &to;
  const context::transfer_t back = context::jump_fcontext(to.context, &from);
  static_cast<Fiber*>(back.data)->context = back.fctx;
  finish_switch(from);
}

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
  for (void* group : groups_) ::munmap(group, kPage + kGroup * kStackBytes);
}

Fiber* FiberPool::make() {
  const std::size_t number = fibers_.size();
  if (number % kGroup == 0) {
    void* group = ::mmap(nullptr, kPage + kGroup * kStackBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (group == MAP_FAILED) fatal("no memory for the stacks of a block's threads");
    ::mprotect(group, kPage, PROT_NONE);
    groups_.push_back(group);
  }
  auto fiber = std::make_unique<Fiber>();
  fiber->stack = static_cast<std::byte*>(groups_.back()) + kPage + (number % kGroup) * kStackBytes;
  fiber->stack_bytes = kStackBytes - (number * kGap) % kPage;
  std::memcpy(fiber->stack, &kPattern, sizeof kPattern);
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
  fiber.context = context::make_fcontext(fiber.stack + fiber.stack_bytes, fiber.stack_bytes, begin);
}

void FiberPool::name([[maybe_unused]] Fiber& fiber, [[maybe_unused]] const char* text) {
#ifdef VGPU_TSAN
  __tsan_set_fiber_name(fiber.tsan_fiber, text);
#endif
}

bool FiberPool::intact(const Fiber& fiber) {
  return std::memcmp(fiber.stack, &kPattern, sizeof kPattern) == 0;
}

}  // namespace vgpu
