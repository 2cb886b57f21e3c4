#include "kernels/vgpu/queue.hpp"

#include <atomic>
#include <chrono>
#include <sys/prctl.h>
#include <thread>

#include "kernels/vgpu/api/stream.hpp"
#include "kernels/vgpu/device.hpp"
#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/order.hpp"

namespace vgpu {

constinit thread_local const std::string* current_operation = nullptr;
constinit thread_local bool in_copy = false;

namespace {
constexpr unsigned kDelayedOneIn = 4;  // operations
}

std::shared_ptr<Queue> Queue::create(Device& device) {
  static std::atomic<std::uint64_t> number{0};
  std::shared_ptr<Queue> queue(new Queue(device, ++number));
  device.add(queue);
  std::thread([queue] { queue->work(); }).detach();
  return queue;
}

Queue::Queue(Device& device, std::uint64_t number)
    : device_(device),
      name_("stream " + std::to_string(number) + " of device " + std::to_string(device.index())),
      random_(number ^ 0x5172'65616d),
      helpers_(Helpers::lend()) {}

void Queue::add(const char* name, std::function<void()> run) {
  std::shared_ptr<Operation> op;
  {
    const Quiet quiet;
    op = std::make_shared<Operation>(Operation{name, std::move(run)});
  }
  happens_before(&op->begin);
  const Quiet quiet;
  const std::scoped_lock lock(mutex_);
  waiting_.push_back(op);
  last_ = std::move(op);
  ++added_;
  changed_.notify_all();
}

void Queue::work() {
  const Quiet quiet;
  ::prctl(PR_SET_TIMERSLACK, 1000UL);  // ns: short sleeps are short
  const std::uint64_t longest = Settings::get().delay_us;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !waiting_.empty() || closed_; });
    if (waiting_.empty()) break;
    const std::shared_ptr<Operation> op = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    if (longest > 0 && random_.below(kDelayedOneIn) == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random_.below(longest + 1)));
    {
      const Loud loud;
      happens_after(&op->begin);
    }
    const std::string description = std::string(op->name) + " in " + name_;
    current_operation = &description;
    op->run();
    current_operation = nullptr;
    {
      const Loud loud;
      happens_before(&op->end);
    }
    op->run = nullptr;
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
  lock.unlock();
  device_.remove(shared_from_this());
}

void Queue::synchronize() {
  std::shared_ptr<Operation> last;
  {
    const Quiet quiet;
    std::unique_lock lock(mutex_);
    last = last_;
    const std::uint64_t goal = added_;
    changed_.wait(lock, [&] { return done_ >= goal; });
  }
  if (last != nullptr) happens_after(&last->end);
  const Quiet quiet;
  last.reset();
}

bool Queue::idle() {
  std::shared_ptr<Operation> last;
  {
    const Quiet quiet;
    const std::scoped_lock lock(mutex_);
    if (done_ < added_) return false;
    last = last_;
  }
  if (last != nullptr) happens_after(&last->end);
  const Quiet quiet;
  last.reset();
  return true;
}

void Queue::close() {
  const std::scoped_lock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

Queue* queue_of(CUstream_st* stream, const char* call) {
  if (stream != nullptr) return stream->queue.get();
  fail(cudaErrorInvalidResourceHandle,
       std::string(call) + ": the legacy default stream (0) is not supported: name a stream");
  return nullptr;
}

}  // namespace vgpu

using vgpu::Device;
using vgpu::fail;
using vgpu::Queue;
using vgpu::queue_of;
using vgpu::Quiet;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  const Quiet quiet;
  if (flags > cudaStreamNonBlocking)
    return fail(cudaErrorInvalidValue, "cudaStreamCreateWithFlags: unknown flags");
  *stream = new CUstream_st{Queue::create(Device::current())};
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Quiet quiet;
  Queue* queue = queue_of(stream, "cudaStreamDestroy");
  if (queue == nullptr) return cudaErrorInvalidResourceHandle;
  queue->close();
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Queue* queue = queue_of(stream, "cudaStreamSynchronize");
  if (queue == nullptr) return cudaErrorInvalidResourceHandle;
  queue->synchronize();
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  Queue* queue = queue_of(stream, "cudaStreamQuery");
  if (queue == nullptr) return cudaErrorInvalidResourceHandle;
  return queue->idle() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  Queue* queue = queue_of(stream, "cudaLaunchHostFunc");
  if (queue == nullptr) return cudaErrorInvalidResourceHandle;
  queue->add("host function", [function, data] {
    const vgpu::Loud loud;
    function(data);
  });
  return cudaSuccess;
}
