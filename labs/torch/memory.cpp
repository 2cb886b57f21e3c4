#include "labs/torch/memory.hpp"

#include <c10/core/CPUAllocator.h>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "labs/torch/errors.hpp"

namespace ringsmith::pytorch {

namespace {

using Shared = std::shared_ptr<comm::CommMemory>;

thread_local std::vector<c10::intrusive_ptr<Backend>> scopes;

// The blocks held by tensors. Each block exists as long as its tensor, even after the group is
// gone. The blocks are keyed by address, because PyTorch also allocates memory without a DataPtr
// (convolutions do).
class Blocks {
 public:
  void* keep(Shared block) {
    void* const data = block->data();
    const std::lock_guard lock(mutex_);
    blocks_.emplace(data, std::move(block));
    return data;
  }
  bool drop(void* data) {
    Shared block;  // freed after the lock is released
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(data);
    if (found == blocks_.end()) return false;
    block = std::move(found->second);
    blocks_.erase(found);
    return true;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<void*, Shared> blocks_;
};

Blocks& blocks() {
  // Never deleted: tensors may be freed after all static objects.
  static auto* const all = new Blocks;
  return *all;
}

void drop(void* data) { (void)blocks().drop(data); }

c10::DeleterFnPtr drop_another = nullptr;  // deleter of the replaced allocator

void drop_any(void* data) {
  if (!blocks().drop(data)) drop_another(data);
}

class Allocator final : public c10::Allocator {
 public:
  explicit Allocator(c10::Allocator* others) : others_(others) {
    drop_another = others->raw_deleter();
  }

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
  c10::DataPtr allocate(std::size_t bytes) override { return give(bytes); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
#else
  c10::DataPtr allocate(std::size_t bytes) const override { return give(bytes); }
#endif
  c10::DeleterFnPtr raw_deleter() const override { return &drop_any; }

 private:
  [[nodiscard]] c10::DataPtr give(std::size_t bytes) const {
    if (scopes.empty() || bytes < kLeastShared) return others_->allocate(bytes);
    void* const data =
        with_python_errors([&] { return blocks().keep(scopes.back()->allocate(bytes)); });
    return {data, data, &drop, c10::Device(c10::DeviceType::CPU)};
  }

  c10::Allocator* others_;
};

// When glibc frees a block that it had mapped, it serves blocks of that size, of 32 MiB at most,
// from the heap from then on, and lets the heap keep twice as much free memory (mallopt(3),
// M_MMAP_THRESHOLD). PyTorch's DDP frees its first buckets and so teaches glibc the size of the
// gradients. Buckets in communication memory do not: each step would return the gradients' memory
// to the kernel and fault it in again, page by page, which took a sixth of an MLP's step.
void let_the_heap_keep_gradients() {
  // volatile, so that the compiler keeps the calls
  void* volatile const untouched = std::malloc(std::size_t{31} << 20);
  std::free(untouched);
}

}  // namespace

void open_shared_scope(c10::intrusive_ptr<Backend> group) {
  static std::once_flag once;
  std::call_once(once, [] {
    let_the_heap_keep_gradients();
    constexpr std::uint8_t kAnyPriority = 255;  // c10 keeps the allocator with the higher priority
    // Never deleted: our memory may be freed after all static objects.
    c10::SetCPUAllocator(new Allocator(c10::GetCPUAllocator()), kAnyPriority);
  });
  scopes.push_back(std::move(group));
}

void close_shared_scope() { scopes.pop_back(); }

at::Tensor shared_zeros(const c10::intrusive_ptr<Backend>& group,
                        const std::vector<std::int64_t>& sizes, at::ScalarType type) {
  std::size_t bytes = c10::elementSize(type);
  for (const std::int64_t size : sizes) bytes *= static_cast<std::size_t>(size);
  const Shared block = with_python_errors([&] { return group->allocate(bytes); });
  return at::from_blob(
      block->data(), sizes, [block](void*) {}, at::TensorOptions(type));
}

}  // namespace ringsmith::pytorch
