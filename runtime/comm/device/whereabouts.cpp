#include "runtime/comm/device/whereabouts.hpp"

#include <algorithm>
#include <limits>
#include <random>
#include <sstream>
#include <unistd.h>

#include "kernels/cuda/launch.hpp"
#include "runtime/comm/device/calls.hpp"
#include "runtime/comm/schedule/schedule.hpp"
#include "runtime/device/driver_gate.hpp"

namespace ringsmith::comm::cuda_ipc {

namespace {

// The nonce is needed because processes of different containers may have the same pid.
std::string process_token() {
  static const std::string nonce = [] {
    std::random_device random;
    return std::to_string(std::uint64_t{random()} << 32 | random());
  }();
  return std::to_string(getpid()) + "-" + nonce;  // the pid, because a fork copies the nonce
}

std::string uuid_of(const cudaDeviceProp& properties) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : properties.uuid.bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

cudaDeviceProp properties_of(int device) {
  cudaDeviceProp properties{};
  cuda_check(cudaGetDeviceProperties(&properties, device));
  return properties;
}

// Leaves most of a large device to other kernels. Small devices are emulated.
Shape shape_for(const cudaDeviceProp& properties) {
  constexpr int kLargeDevice = 16;  // multiprocessors
  if (properties.multiProcessorCount < kLargeDevice) return {2, 32, std::size_t{8} << 10};
  return {std::min(kMostChannels, properties.multiProcessorCount / 4), kMostThreads,
          std::size_t{512} << 10};
}

// Loads the kernels that wait for other ranks' kernels, and returns the number of blocks of any of
// them that the device holds simultaneously; the compiled kernels' registers limit it.
//
// By default, the driver loads a kernel at its first launch, and may wait for the device's running
// kernels then. If another rank of this process has launched its kernel and waits for this one, the
// wait would never end.
int load_kernels(const cudaDeviceProp& properties, int threads) {
  const DriverCall gate;
  std::vector<const void*> kernels = ring_kernels();
  const std::vector<const void*> more = direct_kernels();
  kernels.insert(kernels.end(), more.begin(), more.end());
  int fewest = std::numeric_limits<int>::max();
  for (const void* kernel : kernels) {
    cudaFuncAttributes attributes{};
    cuda_check(cudaFuncGetAttributes(&attributes, kernel));
    int blocks = 0;
    cuda_check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, 0));
    fewest = std::min(fewest, blocks);
  }
  return fewest * properties.multiProcessorCount;
}

std::string record_of(const Whereabouts& w) {
  std::string name = w.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return w.process + ' ' + w.uuid + ' ' + std::to_string(w.device.index) + ' ' + name + ' ' +
         std::to_string(w.shape.channels) + ' ' + std::to_string(w.shape.threads) + ' ' +
         std::to_string(w.shape.slot_bytes) + ' ' + std::to_string(w.resident);
}

Whereabouts parse(const std::string& record) {
  Whereabouts w;
  std::istringstream in(record);
  int index = 0;
  if (!(in >> w.process >> w.uuid >> index >> w.name >> w.shape.channels >> w.shape.threads >>
        w.shape.slot_bytes >> w.resident))
    throw CommError("corrupt record of a device: '" + record +
                    "'; do all ranks have a device (GroupOptions::device)?");
  w.device = Device::cuda(index);
  return w;
}

// True if device `mine` can reach the device with this UUID, or if that device is not visible to
// this process and so may be reachable.
bool reaches(int mine, const std::string& uuid) {
  for (int device = 0; device < device_count(); ++device) {
    if (uuid_of(properties_of(device)) != uuid) continue;
    int can = 1;
    if (device != mine) cuda_check(cudaDeviceCanAccessPeer(&can, mine, device));
    return can != 0;
  }
  return true;
}

struct Shared {
  int first = -1, second = -1;
};

// Finds two ranks on one device, in the same process (one_process) or in different ones.
Shared find_shared(const std::vector<Whereabouts>& ranks, bool one_process) {
  for (int a = 0; a < static_cast<int>(ranks.size()); ++a)
    for (int b = a + 1; b < static_cast<int>(ranks.size()); ++b)
      if (ranks[at(a)].uuid == ranks[at(b)].uuid &&
          (ranks[at(a)].process == ranks[at(b)].process) == one_process)
        return {a, b};
  return {};
}

std::string both(const Shared& shared) {
  return "ranks " + std::to_string(shared.first) + " and " + std::to_string(shared.second);
}

// Returns the reason why the kernels of the ranks cannot all run simultaneously, or "". Every block
// of a collective waits for blocks of other ranks, so all of them must be resident.
std::string find_crowded(const std::vector<Whereabouts>& ranks, int channels) {
  for (const Whereabouts& w : ranks) {
    const auto sharing = static_cast<int>(std::ranges::count(ranks, w.uuid, &Whereabouts::uuid));
    const int blocks = sharing * channels;
    if (blocks <= w.resident) continue;
    return "the " + std::to_string(sharing) + (sharing == 1 ? " rank" : " ranks") + " on device " +
           w.uuid + " (" + w.name + ") would run " + std::to_string(blocks) +
           " blocks that wait for each other, and the device holds " + std::to_string(w.resident) +
           " such blocks simultaneously";
  }
  return "";
}

std::string how_peers_are_reached(const std::vector<Whereabouts>& ranks) {
  std::size_t pointers = 0, handles = 0;
  for (std::size_t a = 0; a < ranks.size(); ++a)
    for (std::size_t b = a + 1; b < ranks.size(); ++b)
      ++(ranks[a].process == ranks[b].process ? pointers : handles);
  const auto pairs = [](std::size_t n) {
    return std::to_string(n) + (n == 1 ? " pair" : " pairs");
  };
  std::string text = "transport cuda_ipc: ";
  if (handles > 0) text += pairs(handles) + " of ranks by IPC handles";
  if (handles > 0 && pointers > 0) text += ", ";
  if (pointers > 0) text += pairs(pointers) + " inside one process by pointers";
  return text;
}

}  // namespace

void throw_unreachable(CudaEngine asked, const std::string& why) {
  throw UsageError(std::string(name_of(asked)) + " engine: " + why +
                   "; choose other devices, or leave --engine out: the bytes then go through host "
                   "memory");
}

std::vector<Whereabouts> exchange_whereabouts(Bootstrap& bootstrap, Device device) {
  const cudaDeviceProp properties = properties_of(device.index);
  const Shape shape = shape_for(properties);
  const Whereabouts mine{process_token(),
                         uuid_of(properties),
                         device,
                         properties.name,
                         shape,
                         {},
                         load_kernels(properties, shape.threads)};
  std::vector<Whereabouts> ranks;
  for (const std::string& record : bootstrap.all_gather(record_of(mine)))
    ranks.push_back(parse(record));
  std::string reach;
  for (const Whereabouts& peer : ranks) reach += reaches(device.index, peer.uuid) ? '1' : '0';
  const std::vector<std::string> all = bootstrap.all_gather(reach);
  for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r].reaches = all[r];
  return ranks;
}

Decision decide(const std::vector<Whereabouts>& ranks, CudaEngine asked) {
  Decision decision;
  decision.shape = ranks[0].shape;
  for (int r = 0; r < static_cast<int>(ranks.size()); ++r) {
    const Whereabouts& w = ranks[at(r)];
    decision.shape.channels = std::min(decision.shape.channels, w.shape.channels);
    decision.shape.threads = std::min(decision.shape.threads, w.shape.threads);
    decision.shape.slot_bytes = std::min(decision.shape.slot_bytes, w.shape.slot_bytes);
    const std::size_t peer = w.reaches.find('0');
    if (peer == std::string::npos || !decision.refused.empty()) continue;
    decision.refused = "rank " + std::to_string(r) + " on " + w.device.str() + " (" + w.name +
                       ") cannot reach the memory of rank " + std::to_string(peer) + " on " +
                       ranks[peer].device.str() + ": no peer access between these devices";
  }
  if (!decision.refused.empty()) {
    if (asked != CudaEngine::automatic) throw_unreachable(asked, decision.refused);
    return decision;
  }
  if (ranks.size() == 1) {
    decision.lines = {"transport: one rank, no peers", "stream engine"};
    return decision;
  }
  decision.lines = {how_peers_are_reached(ranks)};
  const Shared apart = find_shared(ranks, false), together = find_shared(ranks, true);
  if (apart.first >= 0) {
    const std::string reason =
        both(apart) + " share a device (" + ranks[at(apart.first)].uuid +
        ") from different processes, whose kernels alternate there instead of running together";
    if (asked == CudaEngine::kernel)
      throw UsageError("kernel engine: " + reason +
                       "; use --engine stream, or ranks of one process");
    decision.lines.push_back(asked == CudaEngine::stream
                                 ? "stream engine, as requested"
                                 : "stream engine; the kernel engine was refused: " + reason);
    return decision;
  }
  const std::string crowded = find_crowded(ranks, decision.shape.channels);
  if (!crowded.empty() && asked == CudaEngine::kernel)
    throw UsageError("kernel engine: " + crowded +
                     "; use --engine stream, or fewer ranks on this device");
  if (!crowded.empty() && asked == CudaEngine::automatic) {
    decision.lines.push_back("stream engine; the kernel engine was refused: " + crowded);
    return decision;
  }
  if (asked == CudaEngine::automatic) {
    decision.engine = together.first < 0 ? CudaEngine::kernel : CudaEngine::stream;
    decision.lines.push_back(together.first < 0 ? "kernel engine: every rank has its own device"
                                                : "stream engine: " + both(together) +
                                                      " share a device; inside one process the "
                                                      "kernel engine works too, if all its kernels "
                                                      "fit on the device together (request it)");
    return decision;
  }
  decision.engine = asked;
  decision.lines.push_back(std::string(name_of(asked)) + " engine, as requested" +
                           (asked == CudaEngine::kernel && together.first >= 0
                                ? ": " + both(together) + " share a device inside one process"
                                : ""));
  return decision;
}

}  // namespace ringsmith::comm::cuda_ipc
