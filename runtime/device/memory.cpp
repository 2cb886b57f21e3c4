#include "runtime/device/memory.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cuda.h>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/device/cuda_check.hpp"
#include "runtime/device/driver_gate.hpp"
#include "runtime/device/graph_memory.hpp"

namespace ringsmith::device_allocator {

namespace {

std::atomic<bool>& cache_switch() {
  static std::atomic<bool> on = [] {
    const char* value = std::getenv("RINGSMITH_CUDA_CACHE");
    if (value == nullptr || std::string_view(value) == "on") return true;
    require(std::string_view(value) == "off",
            "RINGSMITH_CUDA_CACHE is '" + std::string(value) + "': use on or off");
    return false;
  }();
  return on;
}

std::string mib(std::size_t bytes) {
  const std::size_t tenths = bytes * 10 >> 20;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " MiB";
}

// The graph that the calling thread captures, on the device of its memory.
struct Capturing {
  Device device;
  std::uint64_t graph = 0;
};
thread_local Capturing capturing;

// Calls of the driver need the gate, which a thread takes before the mutex: a thread that holds a
// JointLaunch has the gate already, and may need the mutex to allocate.
class DeviceCache {
 public:
  explicit DeviceCache(Device device) : device_(device) {}

  std::byte* allocate(std::size_t size) {
    const SizeClass c = size_class_of(size);
    const Stream stream = Stream::current(device_);
    {
      const std::scoped_lock lock(mutex_);
      if (std::byte* const data = reuse(stream, c.index)) return hand_out(data, size, c, stream);
    }
    const DriverCall gate;
    const std::scoped_lock lock(mutex_);
    std::byte* data = reuse(stream, c.index);  // freed in the meantime
    if (data == nullptr) data = from_driver(c.size, size);
    return hand_out(data, size, c, stream);
  }

  void free(std::byte* data) {
    if (!caching()) return free_now(data);
    const std::scoped_lock lock(mutex_);
    if (keep_for_graph(data)) return;
    const Live block = take_back(data);
    if (block.users.empty())
      keep(data, block.stream, block.size_class);
    else
      keep_after(data, block, block.users);
  }

  void begin_graph(std::uint64_t graph) {
    const std::scoped_lock lock(mutex_);
    graphs_[graph];
  }

  void end_graph(std::uint64_t graph, const Stream& stream) {
    const DriverCall gate;
    const std::scoped_lock lock(mutex_);
    const auto ended = graphs_.extract(graph);
    for (const auto& [data, block] : ended.mapped()) {
      if (const auto other = graphs_.find(block.graph); other != graphs_.end())
        other->second.emplace_back(data, block);
      else if (!caching())
        to_driver(data, block.size_class.size);
      else if (block.stream == stream && block.users.empty())
        keep(data, stream, block.size_class);  // later work runs after the last launch
      else
        keep_after(data, block, {stream});
    }
  }

  Bytes reserved_by(std::uint64_t graph) {
    const std::scoped_lock lock(mutex_);
    std::size_t sum = 0;
    for (const auto& [data, block] : graphs_.at(graph)) sum += block.size_class.size;
    for (const auto& [data, block] : live_)
      if (block.graph == graph) sum += block.size_class.size;
    return Bytes(sum);
  }

  void record_use(std::byte* data, const Stream& stream) {
    const std::scoped_lock lock(mutex_);
    Live& block = live(data)->second;
    std::vector<Stream>& users = block.users;
    if (stream != block.stream && std::ranges::find(users, stream) == users.end())
      users.push_back(stream);
  }

  AllocatorStats stats() {
    const std::scoped_lock lock(mutex_);
    return stats_;
  }
  void reset_peak() {
    const std::scoped_lock lock(mutex_);
    stats_.peak = stats_.current;
  }
  void release_cached() {
    const DriverCall gate;
    const std::scoped_lock lock(mutex_);
    release();
  }

 private:
  struct Live {
    std::size_t size;  // as requested
    SizeClass size_class;
    Stream stream;              // stream for which it was allocated
    std::vector<Stream> users;  // other streams that use it
    std::uint64_t graph;        // graph in whose capture it was allocated, or 0
  };
  struct Waiting {  // freed, but other streams may still use it
    std::byte* data;
    Stream stream;
    SizeClass size_class;
    std::vector<Event> events;
  };
  struct FreeBlocks {  // of one stream
    Stream stream;     // keeps its handle from being reused
    std::array<std::vector<std::byte*>, SizeClass::kCount> of_class;
  };

  std::unordered_map<std::byte*, Live>::iterator live(std::byte* data) {
    const auto found = live_.find(data);
    if (found == live_.end())
      throw Error("device_allocator: a block of " + device_.str() +
                  " was freed twice, or not allocated here");
    return found;
  }

  [[nodiscard]] std::uint64_t graph_of_thread() const {
    return capturing.device == device_ ? capturing.graph : 0;
  }

  // Frees the block into its graph or, during a capture, into the captured graph, which may have
  // recorded work that uses the block. False if neither exists.
  bool keep_for_graph(std::byte* data) {
    if (graphs_.empty()) return false;
    const std::uint64_t captured = graph_of_thread();
    const auto graph = graphs_.find(captured != 0 ? captured : live(data)->second.graph);
    if (graph == graphs_.end()) return false;
    graph->second.emplace_back(data, take_back(data));
    return true;
  }

  // A captured request reuses the blocks that the capture has allocated and freed. The first
  // request of a block that was allocated before may have to find its contents in every launch.
  std::byte* reuse_in_graph(std::uint64_t graph, const Stream& stream, std::size_t size_class) {
    Freed& freed = graphs_.at(graph);
    for (auto at = freed.rbegin(); at != freed.rend(); ++at) {
      const Live& block = at->second;
      if (block.graph != graph || block.size_class.index != size_class || block.stream != stream ||
          !block.users.empty())
        continue;
      std::byte* const data = at->first;
      freed.erase(std::next(at).base());
      return data;
    }
    return nullptr;
  }

  std::byte* hand_out(std::byte* data, std::size_t size, SizeClass c, const Stream& stream) {
    live_.emplace(data, Live{size, c, stream, {}, graph_of_thread()});
    ++stats_.allocations;
    stats_.current += Bytes(size);
    stats_.peak = std::max(stats_.peak, stats_.current);
    return data;
  }

  Live take_back(std::byte* data) {
    const auto found = live(data);
    Live block = std::move(found->second);
    live_.erase(found);
    stats_.current = stats_.current - Bytes(block.size);
    return block;
  }

  void free_now(std::byte* data) {
    std::unique_lock lock(mutex_);
    if (keep_for_graph(data)) return;
    const Live block = take_back(data);
    lock.unlock();
    for (const Stream& user : block.users) user.synchronize();
    const DriverCall gate;
    lock.lock();
    to_driver(data, block.size_class.size);  // waits for the device
  }

  std::byte* reuse(const Stream& stream, std::size_t size_class) {
    if (!caching()) return nullptr;
    if (const std::uint64_t graph = graph_of_thread(); graph == 0) {
      collect();  // queries events, which a capture forbids
    } else if (std::byte* const data = reuse_in_graph(graph, stream, size_class)) {
      return data;
    }
    const auto found = free_.find(stream.get());
    if (size_class >= SizeClass::kCount || found == free_.end()) return nullptr;
    std::vector<std::byte*>& blocks = found->second->of_class[size_class];
    if (blocks.empty()) return nullptr;
    std::byte* data = blocks.back();
    blocks.pop_back();
    return data;
  }

  void keep(std::byte* data, const Stream& stream, SizeClass c) {
    std::unique_ptr<FreeBlocks>& blocks = free_[stream.get()];
    if (blocks == nullptr) blocks = std::make_unique<FreeBlocks>();
    blocks->stream = stream;
    blocks->of_class[c.index].push_back(data);
    class_sizes_[c.index] = c.size;
  }

  // Keeps the block for its stream, once the work that the users have queued so far is done.
  void keep_after(std::byte* data, const Live& block, const std::vector<Stream>& users) {
    Waiting waiting{data, block.stream, block.size_class, {}};
    for (const Stream& user : users) waiting.events.push_back(Event::record(user));
    waiting_.push_back(std::move(waiting));
  }

  // Makes freed blocks reusable, up to the first that another stream still uses.
  void collect() {
    while (!waiting_.empty()) {
      const Waiting& oldest = waiting_.front();
      if (!std::ranges::all_of(oldest.events, [](const Event& e) { return e.has_happened(); }))
        return;
      keep(oldest.data, oldest.stream, oldest.size_class);
      waiting_.pop_front();
    }
  }

  // from_driver(), to_driver() and release() need the gate and the mutex.
  std::byte* from_driver(std::size_t rounded, std::size_t asked) {
    const DeviceGuard guard(device_);
    const bool captured = graph_of_thread() != 0;
    const CaptureGuard permitted(captured ? cudaStreamCaptureModeRelaxed
                                          : cudaStreamCaptureModeThreadLocal);
    void* data = nullptr;
    cudaError_t code = cudaMalloc(&data, rounded);
    if (code == cudaErrorMemoryAllocation && !captured) {
      (void)cudaGetLastError();
      release();
      code = cudaMalloc(&data, rounded);
    }
    if (code == cudaErrorMemoryAllocation) fail(asked);
    cuda_check(code);
    ++stats_.system_allocations;
    stats_.reserved += Bytes(rounded);
    return static_cast<std::byte*>(data);
  }

  void to_driver(std::byte* data, std::size_t rounded) {
    const DeviceGuard guard(device_);
    stats_.reserved = stats_.reserved - Bytes(rounded);
    cuda_check(cudaFree(data));
  }

  void release() {
    for (const Waiting& w : waiting_)
      for (const Event& event : w.events) event.synchronize();
    collect();
    for (auto& [handle, blocks] : free_)
      for (std::size_t c = 0; c < SizeClass::kCount; ++c) {
        for (std::byte* data : blocks->of_class[c]) to_driver(data, class_sizes_[c]);
        blocks->of_class[c].clear();
      }
    free_.clear();
  }

  [[noreturn]] void fail(std::size_t asked) {
    (void)cudaGetLastError();
    std::size_t unused = 0, total = 0;
    (void)cudaMemGetInfo(&unused, &total);
    throw CudaError(device_.str() + " is out of memory: " + mib(asked) +
                    " requested; tensors of this process hold " + mib(stats_.current.value) +
                    " in " + std::to_string(live_.size()) + " blocks, and the device has " +
                    mib(unused) + " of " + mib(total) +
                    " left; use smaller batches or a smaller model");
  }

  const Device device_;
  std::mutex mutex_;
  std::unordered_map<std::byte*, Live> live_;
  std::unordered_map<CUstream_st*, std::unique_ptr<FreeBlocks>> free_;
  std::deque<Waiting> waiting_;
  using Freed = std::vector<std::pair<std::byte*, Live>>;
  std::map<std::uint64_t, Freed> graphs_;  // the blocks that each has freed
  std::array<std::size_t, SizeClass::kCount> class_sizes_{};
  AllocatorStats stats_;
};

// Never destroyed: tensors in static variables may outlive any other static object.
std::vector<std::unique_ptr<DeviceCache>>& caches() {
  static auto* const all = [] {
    auto* list = new std::vector<std::unique_ptr<DeviceCache>>;
    for (int i = 0; i < device_count(); ++i)
      list->push_back(std::make_unique<DeviceCache>(Device::cuda(i)));
    return list;
  }();
  return *all;
}

DeviceCache& cache_of(Device device) {
  require(device.is_cuda(), "the device allocator has no memory on " + device.str());
  require_device(device);
  return *caches()[static_cast<std::size_t>(device.index)];
}

}  // namespace

std::byte* allocate(Device device, Bytes size) { return cache_of(device).allocate(size.value); }

void free(Device device, std::byte* block) noexcept {
  try {
    cache_of(device).free(block);
  } catch (const CudaError&) {  // destructors must not end the program that reports the error
  } catch (...) {               // e.g. a double free: ends the program with the message
    std::terminate();
  }
}

void record_use(Device device, std::byte* block, const Stream& stream) {
  cache_of(device).record_use(block, stream);
}

AllocatorStats stats(Device device) { return cache_of(device).stats(); }
void reset_peak(Device device) { cache_of(device).reset_peak(); }
void release_cached(Device device) { cache_of(device).release_cached(); }

GraphMemory::GraphMemory(const Stream& stream) : stream_(stream) {
  static std::atomic<std::uint64_t> graphs{0};
  id_ = ++graphs;
  cache_of(stream.device()).begin_graph(id_);
}

GraphMemory::~GraphMemory() {
  try {
    cache_of(stream_.device()).end_graph(id_, stream_);
  } catch (const CudaError&) {  // as in free()
  }
}

Bytes GraphMemory::reserved() const { return cache_of(stream_.device()).reserved_by(id_); }

GraphMemory::Capture::Capture(const GraphMemory& memory) {
  capturing = {memory.stream_.device(), memory.id_};
}
GraphMemory::Capture::~Capture() { capturing = {}; }

bool caching() { return cache_switch().load(std::memory_order_relaxed); }
void set_caching(bool on) { cache_switch().store(on, std::memory_order_relaxed); }

}  // namespace ringsmith::device_allocator

namespace ringsmith {

namespace {

using AddressRange = CUresult (*)(CUdeviceptr*, std::size_t*, CUdeviceptr);

#ifdef RINGSMITH_VGPU
AddressRange address_range() { return cuMemGetAddressRange; }
#else
// Looks the function up at run time, because a program linked with the driver's library could not
// even start without a driver.
AddressRange address_range() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const char* name = "cuMemGetAddressRange";
#if CUDART_VERSION >= 12050
  constexpr unsigned kSince = 3020;  // the call has had 64-bit types since CUDA 3.2
  cuda_check(cudaGetDriverEntryPointByVersion(name, &found, kSince, cudaEnableDefault, &result));
#else
  cuda_check(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result));
#endif
  if (result != cudaDriverEntryPointSuccess || found == nullptr)
    throw CudaError("cuMemGetAddressRange: this driver does not have it; update the driver");
  return reinterpret_cast<AddressRange>(found);
}
#endif

}  // namespace

DriverBlock driver_block_of(const void* device_pointer) {
  static const AddressRange range = address_range();
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(device_pointer);
  if (range(&base, &bytes, address) != CUDA_SUCCESS)
    throw CudaError("cuMemGetAddressRange: the pointer is not device memory of this process");
  return {static_cast<std::uintptr_t>(base), bytes};
}

}  // namespace ringsmith
