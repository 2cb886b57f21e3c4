#include "kernels/cuda/launch.hpp"
#include "runtime/comm/device/ends.hpp"
#include "runtime/comm/device/ping.hpp"
#include "runtime/comm/device/station.hpp"
#include "runtime/device/transfer.hpp"

namespace ringsmith::comm::cuda_ipc {

namespace {

constexpr std::size_t kMostText = 900;  // characters; a record of the bootstrap is less than 4 KiB

struct Words {
  int world, rank;
  std::uint64_t* area[kMostRanks];
  std::uint64_t* read;  // pinned: the word that was read from each area
};

// Returns a word that is unique per pair of ranks and never all 0 or all 1 bits.
__host__ __device__ constexpr std::uint64_t word(int from, int to) {
  return 0x5a31'2c4f'6677'3b19U ^
         (static_cast<std::uint64_t>(from) << 8 | static_cast<std::uint64_t>(to) << 24);
}

__global__ void ping(Words w) {
  for (int r = static_cast<int>(threadIdx.x); r < w.world; r += static_cast<int>(blockDim.x)) {
    if (r == w.rank) continue;
    w.read[r] = SystemAtomic<std::uint64_t>(w.area[r][r]).load(cuda::memory_order_acquire);
    SystemAtomic<std::uint64_t>(w.area[r][w.rank])
        .store(word(w.rank, r), cuda::memory_order_release);
  }
}

std::string name(const std::vector<Whereabouts>& ranks, int rank) {
  return "rank " + std::to_string(rank) + " (" +
         ranks[static_cast<std::size_t>(rank)].device.str() + ")";
}

}  // namespace

Ping::Ping(Segments& segments, DevicePeers& device_peers, DeviceArena& arena)
    : segments_(segments), device_peers_(device_peers) {
  const Bytes size(static_cast<std::size_t>(segments.size()) * sizeof(std::uint64_t));
  area_ = arena.allocate(size);
  const std::uint64_t own = word(segments.rank(), segments.rank());
  const auto place = static_cast<std::size_t>(segments.rank()) * sizeof own;
  transfer(area_->data() + place, area_->device(), reinterpret_cast<const std::byte*>(&own),
           Device::cpu(), Bytes(sizeof own));
  Stream::current().synchronize();
  device_peers.mine().ping = *arena.locate(area_->data(), size);
}

std::string Ping::exchange(Bootstrap& bootstrap, const std::vector<Whereabouts>& ranks) {
  const auto agree = [&](const std::string& mine) -> std::string {
    for (const std::string& said :
         bootstrap.all_gather(mine.empty() ? "ok" : mine.substr(0, kMostText)))
      if (said != "ok") return said;
    return {};
  };
  // agree() is also a barrier: no rank looks at its own area before all ranks have written.
  const std::string failed = agree(write_and_read(ranks));
  return failed.empty() ? agree(look(ranks)) : failed;
}

std::string Ping::write_and_read(const std::vector<Whereabouts>& ranks) {
  int other = segments_.rank();
  try {
    PinnedBlock read(Bytes(kMostRanks * sizeof(std::uint64_t)));
    Words words{
        segments_.size(), segments_.rank(), {}, reinterpret_cast<std::uint64_t*>(read.data())};
    device_peers_.enable_peer_access();
    for (other = 0; other < segments_.size(); ++other) {
      words.area[other] = reinterpret_cast<std::uint64_t*>(
          device_peers_.address(other, device_peers_.of(other).ping));
      if (other != segments_.rank()) (void)device_peers_.event(other, kReadyEvent);
    }
    const Stream stream = Stream::current();
    launch(ping, 1, 32, 0, stream.get(), words);
    stream.synchronize();
    for (other = 0; other < segments_.size(); ++other)
      if (other != segments_.rank() && words.read[other] != word(other, other))
        return name(ranks, segments_.rank()) + " reads a wrong value from the memory of " +
               name(ranks, other);
    return {};
  } catch (const Error& error) {
    (void)cudaGetLastError();
    return name(ranks, segments_.rank()) + " cannot use the memory of " +
           (other < segments_.size() ? name(ranks, other) : "its peers") + ": " + error.what();
  }
}

std::string Ping::look(const std::vector<Whereabouts>& ranks) const {
  std::vector<std::uint64_t> words(static_cast<std::size_t>(segments_.size()));
  transfer(reinterpret_cast<std::byte*>(words.data()), Device::cpu(), area_->data(),
           area_->device(), Bytes(words.size() * sizeof(std::uint64_t)));
  for (int r = 0; r < segments_.size(); ++r)
    if (words[static_cast<std::size_t>(r)] != word(r, segments_.rank()))
      return "a write of " + name(ranks, r) + " to the memory of " + name(ranks, segments_.rank()) +
             " does not arrive";
  return {};
}

}  // namespace ringsmith::comm::cuda_ipc
