// The state of a block's copies, products and barriers (api/wgmma.hpp) that are in flight.
//
// The async proxy is the part of a multiprocessor through which tensor copies and wgmma access
// shared memory. Ordinary stores are not visible there without a fence. Here `seen_` is a second
// copy of the block's shared memory: fence_async_proxy() copies everything into it, a tensor copy
// writes to both. A product that finds a difference has read a store that no fence has published.
// Limits: any thread's fence publishes all threads' stores, and equal values are no difference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/vgpu/api/wgmma.hpp"
#include "kernels/vgpu/include/cuda.h"

namespace vgpu {

class BlockRunner;
struct Thread;

class AsyncProxy {
 public:
  explicit AsyncProxy(BlockRunner& runner) : runner_(runner) {}
  AsyncProxy(const AsyncProxy&) = delete;
  AsyncProxy& operator=(const AsyncProxy&) = delete;

  // The block's dynamic shared memory. Its first byte is at the shared address `first`.
  void begin_block(std::byte* shared, std::size_t bytes, std::uint32_t first);
  void end_block();

  void init(void* barrier, unsigned arrivals);
  void expect(void* barrier, unsigned bytes);
  void arrive(void* barrier);
  // True if the phase of this parity has ended. If not, the thread sleeps until a phase ends.
  bool ended(void* barrier, unsigned parity);
  char* order(void* barrier, unsigned parity);  // declares the phase's order to ThreadSanitizer
  unsigned phase(void* barrier);

  void copy(void* to, const CUtensorMap& map, void* barrier, const int (&at)[3]);
  void fence();
  // One copy that is in flight arrives. False if there is none.
  bool deliver();

  void issue(unsigned warp, const Multiply (&lanes)[32]);
  void commit(unsigned warp);
  void wait(unsigned warp, unsigned may_remain);
  [[nodiscard]] bool in_flight(unsigned warp, const float* sums) const;

  // Names the arrivals and bytes for which a barrier still waits.
  [[nodiscard]] std::string describe(const void* barrier) const;

 private:
  struct Barrier {
    unsigned expected = 0, pending = 0;  // arrivals
    std::int64_t bytes = 0;              // that have been announced and have not arrived
    unsigned phase = 0;
    bool fenced = false;                    // visible to the async proxy
    std::vector<std::uint16_t> sleeping{};  // threads
    char order[2]{};
  };
  struct Copy {
    std::uint32_t to;
    CUtensorMap map;
    Barrier* barrier;
    int at[3];
  };
  struct Product {
    Multiply lanes[32];
    unsigned group;
    bool done;
  };
  struct Warp {
    std::vector<Product> products{};
    unsigned groups = 0;
  };

  Barrier& find(const void* barrier, const char* what);
  void check(Barrier& barrier);
  void arrive(const Copy& copy);
  void multiply(const Product& product, unsigned warp) const;
  [[nodiscard]] float element(std::uint64_t descriptor, bool by_lines, unsigned line,
                              unsigned k) const;
  [[nodiscard]] std::byte* place(std::uint32_t address, std::size_t bytes, const char* what) const;

  BlockRunner& runner_;
  std::byte* shared_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint32_t first_ = 0;
  std::vector<std::byte> seen_;
  std::map<std::uint32_t, Barrier> barriers_;  // by shared address
  std::vector<Copy> copies_;
  std::vector<Warp> warps_;
};

}  // namespace vgpu
