#include "kernels/vgpu/device.hpp"

#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

#include "kernels/vgpu/api/foreign.hpp"
#include "kernels/vgpu/api/language.hpp"
#include "kernels/vgpu/api/runtime.hpp"
#include "kernels/vgpu/capture.hpp"
#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/fault.hpp"
#include "kernels/vgpu/order.hpp"
#include "kernels/vgpu/queue.hpp"
#include "kernels/vgpu/rights.hpp"
#include "kernels/vgpu/settings.hpp"

namespace vgpu {

namespace {

// Size of each device's address range. A larger range delays the reuse of freed addresses, but
// ThreadSanitizer leaves programs little more than a terabyte.
constexpr std::size_t kMostSpan = kTsan ? std::size_t{64} << 30 : std::size_t{1} << 40;

// Reserves kMostSpan addresses for each of n devices, or fewer if the system does not allow that
// many. (Some arm64 kernels allow half a terabyte in total.) If `ulimit -v` sets a limit, at most
// half of it is reserved, unless the devices need more.
std::span<std::byte> reserve(std::size_t n) {
  const std::size_t least = std::bit_ceil(Settings::get().memory_bytes) * 2;  // guards, gaps
  rlimit limit{};
  ::getrlimit(RLIMIT_AS, &limit);
  std::size_t span = kMostSpan;
  while (limit.rlim_cur != RLIM_INFINITY && span > least && n * span > limit.rlim_cur / 2)
    span /= 2;
  for (; span >= least; span /= 2) {
    void* space =
        ::mmap(nullptr, n * span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space != MAP_FAILED) return {static_cast<std::byte*>(space), span};
  }
  fatal("no address space for " + std::to_string(n) + " devices: they need " +
        std::to_string((n * least) >> 30) + " GiB" +
        (limit.rlim_cur == RLIM_INFINITY
             ? std::string()
             : ", and ulimit -v allows " + std::to_string(limit.rlim_cur >> 20) + " MiB in total") +
        "; use ulimit -v unlimited, fewer VGPU_DEVICES or less VGPU_MEMORY_MB");
}

constexpr char kNoDevices[] =
    "there are no devices: CUDA_VISIBLE_DEVICES hides them, or VGPU_DRIVER_ERROR is set";

struct Machine {
  std::byte* base = nullptr;
  std::size_t span = 0;  // bytes of addresses of each device
  pid_t process = 0;
  std::vector<std::unique_ptr<Device>> devices;
};

Machine& machine() {
  static Machine* made = [] {
    auto* m = new Machine;
    const std::size_t n = Settings::get().devices.size();
    if (Device::count() == 0) fatal(kNoDevices);
    const std::span<std::byte> first = reserve(n);
    m->base = first.data();
    m->span = first.size();
    m->process = ::getpid();
    for (std::size_t i = 0; i < n; ++i)
      m->devices.push_back(
          std::make_unique<Device>(static_cast<int>(i), m->base + i * m->span, m->span));
    install_fault_handler();
    return m;
  }();
  if (made->process != ::getpid())
    fatal("CUDA was used before fork(): the child has no devices. Fork first");
  return *made;
}

thread_local int current_index = 0;

}  // namespace

Driver::Turn::Turn(Driver& driver, Call call, const void* kernel) {
  if (!Settings::get().driver_waits) return;
  const bool eager = Settings::get().eager_loading;
  lock_ = std::unique_lock(driver.calls_);
  std::unique_lock lock(driver.mutex_);
  const bool first = call == Call::launches && driver.loaded_.insert(kernel).second && !eager;
  if (call == Call::allocates || first)
    driver.idle_.wait(lock, [&] { return driver.running_ == 0; });
}

Residency::Place::Place(Residency& residency) : residency_(residency) {
  std::unique_lock lock(residency.mutex_);
  const int most = Settings::get().resident * kMultiprocessors;
  residency.left_.wait(lock, [&] { return most == 0 || residency.blocks_ < most; });
  ++residency.blocks_;
}

Residency::Place::~Place() {
  {
    const std::scoped_lock lock(residency_.mutex_);
    --residency_.blocks_;
  }
  residency_.left_.notify_one();
}

void Driver::kernel_begins() {
  const std::scoped_lock lock(mutex_);
  ++running_;
}

void Driver::kernel_ends() {
  {
    const std::scoped_lock lock(mutex_);
    --running_;
  }
  idle_.notify_all();
}

int Device::count() {
  const Settings& s = Settings::get();
  return s.driver_error != 0 ? 0 : static_cast<int>(s.devices.size());
}
Device& Device::get(int index) { return *machine().devices[static_cast<std::size_t>(index)]; }
Device& Device::current() { return get(current_index); }
void Device::set_current(int index) { current_index = index; }

Device* Device::owner(const void* address) {
  Machine& m = machine();
  const auto at = static_cast<std::size_t>(static_cast<const std::byte*>(address) - m.base);
  return at < m.devices.size() * m.span ? m.devices[at / m.span].get() : nullptr;
}

Device::Device(int index, std::byte* base, std::size_t span)
    : index_(index),
      key_(new_key()),
      memory_(index, base, span, Settings::get().memory_bytes, key_),
      keys_(key_ >= 0 ? 1U << key_ : 0) {}

int Device::number() const { return Settings::get().devices[static_cast<std::size_t>(index_)]; }

// The UUID is derived from the kernel's boot id, so that all processes of a machine agree on it and
// different machines have different UUIDs.
cudaUUID_t Device::uuid() const {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  cudaUUID_t id{};
  std::uint64_t words[2] = {0xcbf29ce484222325U, 0x9e3779b97f4a7c15U};
  for (std::uint64_t& w : words) {
    for (const char c : boot) w = (w ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    w = (w ^ static_cast<std::uint64_t>(number())) * 0x100000001b3U;
  }
  std::memcpy(id.bytes, words, sizeof id.bytes);
  return id;
}

bool Device::set_peer(const Device& peer, bool accessible) {
  const std::scoped_lock lock(mutex_);
  const std::uint64_t bit = 1ULL << peer.index_;
  if (((peers_ & bit) != 0) == accessible) return false;
  peers_ ^= bit;
  std::uint32_t keys = key_ >= 0 ? 1U << key_ : 0;
  for (int d = 0; d < count(); ++d)
    if ((peers_ >> d & 1U) != 0 && get(d).key_ >= 0) keys |= 1U << get(d).key_;
  keys_ = keys;
  return true;
}

void Device::add(const std::shared_ptr<Queue>& stream) {
  const std::scoped_lock lock(mutex_);
  streams_.insert(stream);
}

void Device::remove(const std::shared_ptr<Queue>& stream) {
  const std::scoped_lock lock(mutex_);
  streams_.erase(stream);
}

Queue& Device::legacy() {
  {
    const std::scoped_lock lock(mutex_);
    if (legacy_ != nullptr) return *legacy_;
  }
  const std::shared_ptr<Queue> made = Queue::create(*this, Queue::Kind::legacy);  // adds itself
  const std::scoped_lock lock(mutex_);
  if (legacy_ == nullptr)
    legacy_ = made;
  else
    made->close();  // another thread was faster
  return *legacy_;
}

std::shared_ptr<Queue> Device::legacy_if_used() {
  const std::scoped_lock lock(mutex_);
  return legacy_;
}

std::vector<std::shared_ptr<Queue>> Device::blocking_streams() {
  std::vector<std::shared_ptr<Queue>> out;
  const std::scoped_lock lock(mutex_);
  for (const auto& s : streams_)
    if (s->kind() == Queue::Kind::blocking) out.push_back(s);
  return out;
}

void Device::synchronize() {
  std::vector<std::shared_ptr<Queue>> streams;
  {
    const Quiet quiet;
    const std::scoped_lock lock(mutex_);
    streams.assign(streams_.begin(), streams_.end());
  }
  for (const auto& s : streams) s->synchronize();
  const Quiet quiet;
  streams.clear();
  memory_.check_patterns(
      [this] { return "when device " + std::to_string(index_) + " was synchronized"; });
}

}  // namespace vgpu

// ---- the CUDA calls ----

using vgpu::Device;
using vgpu::fail;
using vgpu::Quiet;

namespace {

constexpr int kSharedBytes = 48 << 10;
using vgpu::kMultiprocessors, vgpu::kMostBlockThreads, vgpu::kMostResidentThreads;

cudaError_t no_device(int device) {
  return fail(cudaErrorInvalidDevice,
              "device " + std::to_string(device) + " does not exist: the device count is " +
                  std::to_string(Device::count()) + " (VGPU_DEVICES, CUDA_VISIBLE_DEVICES)");
}

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  const Quiet quiet;
  *count = Device::count();
  const int error = vgpu::Settings::get().driver_error;
  if (error != 0) return fail(static_cast<cudaError_t>(error), "VGPU_DRIVER_ERROR is set");
  return *count > 0 ? cudaSuccess
                    : fail(cudaErrorNoDevice, "CUDA_VISIBLE_DEVICES hides all devices");
}

cudaError_t cudaGetDevice(int* device) {
  const Quiet quiet;
  *device = Device::current().index();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  const Quiet quiet;
  if (!Device::exists(device)) return no_device(device);
  Device::set_current(device);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const Quiet quiet;
  if (!Device::exists(device)) return no_device(device);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "vgpu");
  properties->uuid = Device::get(device).uuid();
  properties->totalGlobalMem = Device::get(device).memory().capacity();
  properties->sharedMemPerBlock = kSharedBytes;
  properties->sharedMemPerBlockOptin = vgpu::Settings::get().shared_bytes;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = kMostBlockThreads;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = kMostBlockThreads;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 0x7fffffff;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 0xffff;
  properties->multiProcessorCount = kMultiprocessors;
  properties->maxThreadsPerMultiProcessor = kMostResidentThreads;
  properties->major = 9;
  properties->pciBusID = Device::get(device).number();
  properties->l2CacheSize = 1 << 20;
  properties->unifiedAddressing = 1;
  properties->canMapHostMemory = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  const Quiet quiet;
  if (!Device::exists(device)) return no_device(device);
  const auto is = [&](int known) {
    *value = known;
    return cudaSuccess;
  };
  switch (static_cast<int>(attribute)) {
    case cudaDevAttrMaxThreadsPerBlock:
      return is(kMostBlockThreads);
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return is(kSharedBytes);
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return is(static_cast<int>(vgpu::Settings::get().shared_bytes));
    case cudaDevAttrWarpSize:
      return is(32);
    case cudaDevAttrMultiProcessorCount:
      return is(kMultiprocessors);
    case cudaDevAttrComputeCapabilityMajor:
      return is(9);
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
      return is(kMostBlockThreads);
    case cudaDevAttrMaxBlockDimZ:
      return is(64);
    case cudaDevAttrMaxGridDimX:
      return is(0x7fffffff);
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      return is(0xffff);
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return is(kMostResidentThreads);
    case cudaDevAttrTotalConstantMemory:
    case cudaDevAttrMaxRegistersPerBlock:
      return is(64 << 10);
    case cudaDevAttrGlobalMemoryBusWidth:
      return is(64);
    case cudaDevAttrL2CacheSize:
      return is(1 << 20);
    case cudaDevAttrAsyncEngineCount:
      return is(2);
    case cudaDevAttrComputeCapabilityMinor:
    case cudaDevAttrComputeMode:
    case cudaDevAttrIntegrated:
    case cudaDevAttrKernelExecTimeout:
    case cudaDevAttrMemoryPoolSupportedHandleTypes:
      return is(0);
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate:
      return is(1'000'000);
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrGpuOverlap:
    case cudaDevAttrHostNativeAtomicSupported:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrUnifiedAddressing:
      return is(1);
  }
  return fail(cudaErrorInvalidValue,
              "device attribute " + std::to_string(attribute) + " is not modelled");
}

cudaError_t cudaDeviceSynchronize() {
  vgpu::outside_host_functions("cudaDeviceSynchronize");
  if (const auto e = vgpu::refuse_unsafe("cudaDeviceSynchronize")) return e;
  Device::current().synchronize();
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  const Quiet quiet;
  constexpr int kOldDriver = 11040;
  const bool old = vgpu::Settings::get().driver_error == cudaErrorInsufficientDriver;
  *version = old ? kOldDriver : CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  const Quiet quiet;
  if (!Device::exists(device)) return no_device(device);
  constexpr int kLength = 13;  // including the terminating zero
  if (length < kLength)
    return fail(cudaErrorInvalidValue,
                "cudaDeviceGetPCIBusId: the buffer must hold at least 13 characters");
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0",
                static_cast<unsigned>(Device::get(device).number()));
  return cudaSuccess;
}

cudaError_t cudaDeviceReset() { return cudaDeviceSynchronize(); }

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  const Quiet quiet;
  if (!Device::exists(device)) return no_device(device);
  if (!Device::exists(peer)) return no_device(peer);
  *can = device != peer && vgpu::Settings::get().peers != vgpu::PeerAccess::none ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  const Quiet quiet;
  if (!Device::exists(peer)) return no_device(peer);
  if (flags != 0) return fail(cudaErrorInvalidValue, "cudaDeviceEnablePeerAccess: flags must be 0");
  if (peer == Device::current().index())
    return fail(cudaErrorInvalidDevice, "a device is not its own peer");
  if (vgpu::Settings::get().peers == vgpu::PeerAccess::none)
    return fail(cudaErrorPeerAccessUnsupported, "peer access is disabled (VGPU_PEERS=none)");
  if (!Device::current().set_peer(Device::get(peer), true))
    return fail(cudaErrorPeerAccessAlreadyEnabled,
                "device " + std::to_string(Device::current().index()) +
                    " can already access device " + std::to_string(peer));
  return cudaSuccess;
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  const Quiet quiet;
  if (!Device::exists(peer)) return no_device(peer);
  if (Device::current().set_peer(Device::get(peer), false)) return cudaSuccess;
  return fail(cudaErrorPeerAccessNotEnabled, "device " + std::to_string(Device::current().index()) +
                                                 " cannot access device " + std::to_string(peer));
}
