#include "kernels/vgpu/queue.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <sys/prctl.h>
#include <thread>
#include <vector>

#include "kernels/vgpu/api/runtime.hpp"
#include "kernels/vgpu/capture.hpp"
#include "kernels/vgpu/device.hpp"
#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/event.hpp"
#include "kernels/vgpu/order.hpp"

namespace vgpu {

constinit thread_local const std::string* current_operation = nullptr;
constinit thread_local bool in_copy = false;
constinit thread_local bool in_host_function = false;

namespace {
constexpr unsigned kDelayedOneIn = 4;  // one in this many operations is delayed

// Never destroyed, because workers may outlive main().
Living<CUstream_st>& streams() {
  static auto* const all = new Living<CUstream_st>;
  return *all;
}

// The driver has one thread for the host functions of all streams, so a function that waits for
// another stream's host function waits forever (seen on an H200, driver 580). The emulator calls
// them one at a time, too.
void call_host_function(cudaHostFn_t function, void* data) {
  static std::mutex one_at_a_time;
  const std::scoped_lock lock(one_at_a_time);
  in_host_function = true;
  try {
    const Loud loud;
    function(data);
  } catch (const std::exception& e) {
    fatal("an exception escaped from a " + *current_operation + ": " + e.what());
  } catch (...) {
    fatal("an exception escaped from a " + *current_operation);
  }
  in_host_function = false;
}

}  // namespace

std::shared_ptr<Queue> Queue::create(Device& device, Kind kind) {
  static std::atomic<std::uint64_t> number{0};
  std::shared_ptr<Queue> queue(new Queue(device, ++number, kind));
  device.add(queue);
  std::thread([queue] { queue->work(); }).detach();
  return queue;
}

Queue::Queue(Device& device, std::uint64_t number, Kind kind)
    : device_(device),
      kind_(kind),
      name_((kind == Kind::legacy ? "default stream" : "stream " + std::to_string(number)) +
            " of device " + std::to_string(device.index())),
      random_(number ^ 0x5172'65616d),
      helpers_(Helpers::lend()) {}

// The waits that the legacy default stream implies use internal events. Each event is recorded in
// the other stream before this stream waits for it, so that waits cannot form a cycle.
void Queue::add(const char* name, std::function<void()> run) {
  if (Settings::get().legacy_stream && kind_ != Kind::free && !capturing()) {
    std::vector<std::shared_ptr<Queue>> others;
    {
      const Quiet quiet;
      if (kind_ == Kind::legacy)
        others = device_.blocking_streams();
      else if (auto legacy = device_.legacy_if_used())
        others.push_back(std::move(legacy));
    }
    for (const auto& other : others) wait_for(*other);
    const Quiet quiet;
    others.clear();
  }
  if (!push(name, std::move(run)))
    fatal(std::string(name) + " was added to " + name_ + " after cudaStreamDestroy");
}

void Queue::wait_for(Queue& other) {
  std::shared_ptr<LocalMoment> moment;
  {
    const Quiet quiet;
    moment = std::make_shared<LocalMoment>();
  }
  // A destroyed stream whose worker has ended has no work to wait for, and would never run the
  // record. synchronize() then only declares the order to ThreadSanitizer.
  if (!other.push("event record", [moment] { moment->reach(); }))
    other.synchronize();
  else if (!push("event wait", [moment] { moment->wait(); }))
    fatal("work was added to " + name_ + " after cudaStreamDestroy");
  const Quiet quiet;
  moment.reset();
}

bool Queue::begin_capture() {
  const std::scoped_lock lock(mutex_);
  if (graph_ != nullptr) return false;
  graph_ = std::make_shared<Graph>();
  graph_->origin = shared_from_this();
  after_.clear();
  return true;
}

std::pair<std::shared_ptr<Graph>, bool> Queue::end_capture() {
  std::shared_ptr<Graph> graph;
  std::vector<std::shared_ptr<Queue>> joined;
  std::vector<bool> followed;  // by node: this stream waits for it
  {
    const std::scoped_lock lock(mutex_);
    graph = std::move(graph_);
    if (graph == nullptr) return {};
    const std::scoped_lock graph_lock(graph->mutex);
    graph->ended = true;
    joined = graph->joined;
    followed.resize(graph->nodes.size());
    for (const std::size_t node : after_) followed[node] = true;
    for (std::size_t node = followed.size(); node-- > 0;)
      if (followed[node])
        for (const std::size_t before : graph->nodes[node].after) followed[before] = true;
  }
  bool all = true;
  for (const auto& queue : joined) {
    const std::scoped_lock lock(queue->mutex_);
    for (const std::size_t node : queue->after_) all = all && followed[node];
    queue->graph_.reset();
    queue->after_.clear();
  }
  return {std::move(graph), all};
}

const Queue* Queue::capture_origin() {
  const std::scoped_lock lock(mutex_);
  return graph_ != nullptr ? graph_->origin.get() : nullptr;
}

CapturePoint Queue::capture_point() {
  const std::scoped_lock lock(mutex_);
  return {graph_, graph_ != nullptr ? after_ : std::vector<std::size_t>()};
}

bool Queue::join(const CapturePoint& point) {
  const std::scoped_lock lock(mutex_);
  if (graph_ != nullptr && graph_ != point.graph) return false;
  if (graph_ == nullptr) {
    graph_ = point.graph;
    after_.clear();
    const std::scoped_lock graph_lock(graph_->mutex);
    graph_->joined.push_back(shared_from_this());
  }
  for (const std::size_t node : point.after)
    if (std::find(after_.begin(), after_.end(), node) == after_.end()) after_.push_back(node);
  return true;
}

bool Queue::capturing() {
  const Quiet quiet;
  const std::scoped_lock lock(mutex_);
  return graph_ != nullptr;
}

bool Queue::capture(const char* name, std::function<void()>& run) {
  const std::scoped_lock lock(mutex_);
  if (graph_ == nullptr) return false;
  const std::scoped_lock graph_lock(graph_->mutex);
  graph_->nodes.push_back({name, std::move(run), {}, std::move(after_)});
  after_ = {graph_->nodes.size() - 1};
  return true;
}

bool Queue::push(const char* name, std::function<void()> run) {
  {
    const Quiet quiet;
    if (capture(name, run)) return true;
  }
  std::shared_ptr<Operation> op;
  {
    const Quiet quiet;
    op = std::make_shared<Operation>(Operation{name, std::move(run)});
  }
  happens_before(&op->begin);
  const Quiet quiet;
  const std::scoped_lock lock(mutex_);
  if (ended_) return false;
  waiting_.push_back(op);
  last_ = std::move(op);
  ++added_;
  changed_.notify_all();
  return true;
}

void Queue::work() {
  const Quiet quiet;
  ::prctl(PR_SET_TIMERSLACK, 1000UL);  // ns: for short sleeps
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
    declare_after(&op->begin);
    const std::string description = std::string(op->name) + " in " + name_;
    current_operation = &description;
    op->run();
    current_operation = nullptr;
    declare_before(&op->end);
    op->run = nullptr;
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
  ended_ = true;
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

void outside_host_functions(const char* call) {
  if (in_host_function)
    fatal(std::string(call) + " is called in a " + *current_operation +
          ", which must not call CUDA");
}

Queue* queue_of(CUstream_st* stream, const char* call) {
  const Quiet quiet;
  outside_host_functions(call);
  const auto number = reinterpret_cast<std::uintptr_t>(stream);
  if (number <= 2) {  // cudaStreamLegacy is 1, cudaStreamPerThread is 2
    if (number < 2 && Settings::get().legacy_stream)
      return refuse_implicit(Device::current(), call) == cudaSuccess ? &Device::current().legacy()
                                                                     : nullptr;
    fail(cudaErrorInvalidResourceHandle,
         std::string(call) + ": the " + (number == 2 ? "per-thread" : "legacy") +
             " default stream (" + std::to_string(number) + ") is not supported: name a stream" +
             (number == 2 ? "" : ", or set VGPU_LEGACY_STREAM=1"));
    return nullptr;
  }
  if (const char* reason = streams().refuse(stream)) {
    fail(cudaErrorInvalidResourceHandle, std::string(call) + ": the stream " + reason);
    return nullptr;
  }
  return stream->queue.get();
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
  const auto kind = flags == cudaStreamNonBlocking ? Queue::Kind::free : Queue::Kind::blocking;
  *stream = vgpu::streams().add(
      std::make_unique<CUstream_st>(CUstream_st{Queue::create(Device::current(), kind)}));
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

constexpr int kLeastPriority = 0, kGreatestPriority = -5;  // as on NVIDIA's devices

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  const cudaError_t error = cudaStreamCreateWithFlags(stream, flags);
  if (error == cudaSuccess)
    (*stream)->priority = std::clamp(priority, kGreatestPriority, kLeastPriority);
  return error;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  const Queue* queue = queue_of(stream, "cudaStreamGetPriority");
  if (queue == nullptr) return cudaPeekAtLastError();
  *priority = queue->kind() == Queue::Kind::legacy ? kLeastPriority : stream->priority;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = kLeastPriority;
  *greatest = kGreatestPriority;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Quiet quiet;
  Queue* queue = queue_of(stream, "cudaStreamDestroy");
  if (queue == nullptr) return cudaPeekAtLastError();
  if (queue->kind() == Queue::Kind::legacy)
    return fail(cudaErrorInvalidResourceHandle,
                "cudaStreamDestroy: the default stream cannot be destroyed");
  queue->close();
  stream->queue.reset();  // the worker keeps the queue while work is left
  vgpu::streams().bury(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Queue* queue = queue_of(stream, "cudaStreamSynchronize");
  if (queue == nullptr) return cudaPeekAtLastError();
  if (queue->capturing()) return vgpu::refuse_captured(*queue, "cudaStreamSynchronize");
  if (const auto e = vgpu::refuse_unsafe("cudaStreamSynchronize")) return e;
  queue->synchronize();
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  Queue* queue = queue_of(stream, "cudaStreamQuery");
  if (queue == nullptr) return cudaPeekAtLastError();
  if (queue->capturing()) return vgpu::refuse_captured(*queue, "cudaStreamQuery");
  if (const auto e = vgpu::refuse_unsafe("cudaStreamQuery")) return e;
  if (queue->idle()) return cudaSuccess;
  return fail(cudaErrorNotReady, queue->name() + " has work left");
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  Queue* queue = queue_of(stream, "cudaLaunchHostFunc");
  if (queue == nullptr) return cudaPeekAtLastError();
  if (function == nullptr)
    return fail(cudaErrorInvalidValue, "cudaLaunchHostFunc: the function is null");
  queue->add("host function", [function, data] { vgpu::call_host_function(function, data); });
  return cudaSuccess;
}
