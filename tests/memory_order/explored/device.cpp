#include "tests/memory_order/explored/device.hpp"

#include <atomic>
#include <cstdlib>
#include <vector>

namespace explorer {
namespace {

// A block's barriers. arrived[thread][barrier] is 1 when the thread has arrived. The words are
// separate, so a barrier is one hand-off between any two threads, and no hand-off orders another.
struct Block {
  static constexpr std::size_t kThreads = 2, kBarriers = 64;
  std::atomic<std::uint32_t> arrived[kThreads][kBarriers]{};
};
std::size_t self = 0;  // thread of the program

}  // namespace

struct Devices::World {
  int threads = 1;
  std::vector<std::unique_ptr<Block>> blocks;  // [rank]
  std::vector<vgpu::ThreadView> thread_views;  // [thread of the program]
  std::vector<vgpu::BlockView> block_views;    // [thread of the program]
  std::vector<std::size_t> barriers;           // [thread of the program]: barriers passed
};
Devices::World* Devices::current = nullptr;

Devices::Devices(int ranks, int threads) : world_(std::make_unique<World>()) {
  World* const world = current = world_.get();
  world->threads = threads;
  const auto n = static_cast<std::size_t>(ranks * threads);
  world->thread_views.resize(n);
  world->block_views.resize(n);
  world->barriers.resize(n);
  for (std::size_t i = 0; i < n; ++i)
    world->thread_views[i].index.x = static_cast<unsigned>(i) % static_cast<unsigned>(threads);
  for (int r = 0; r < ranks; ++r) {
    world->blocks.push_back(std::make_unique<Block>());
    instrumented::watch(world->blocks.back().get(), sizeof(Block), "barrier");
  }
  on_switch([world](std::size_t thread) {
    self = thread;
    vgpu::current_thread = &world->thread_views[thread];
    vgpu::current_block = &world->block_views[thread];
  });
}
Devices::~Devices() {
  if (current == world_.get()) current = nullptr;
}

Program Devices::program(const std::function<void(int, int)>& body,
                         const std::shared_ptr<void>& keep) const {
  Program program;
  for (int r = 0; r < static_cast<int>(world_->blocks.size()); ++r)
    for (int t = 0; t < world_->threads; ++t) {
      std::string name = "rank " + std::to_string(r);
      if (world_->threads > 1) name += " thread " + std::to_string(t);
      program.threads.push_back({name, [body, keep, r, t] { body(r, t); }});
    }
  return program;
}

}  // namespace explorer

// ---- the emulator's functions, implemented with the explorer ----

namespace vgpu {

constinit thread_local ThreadView* current_thread = nullptr;
constinit thread_local BlockView* current_block = nullptr;

void loaded(const void*, std::uint64_t, const Source&) {}
void publish(void*) {}
// Does not call std::atomic_thread_fence(), which g++ refuses to instrument, because
// ThreadSanitizer does not model fences. The explorer does.
void fence(bool acquire, bool release) {
  using explorer::Order;
  if (!explorer::exploring()) return;
  explorer::fence(acquire && release ? Order::acq_rel : acquire ? Order::acquire : Order::release);
}
void trap(const Source&) { std::abort(); }

// Orders memory among a block's threads: each sees the others' earlier stores.
int barrier(Combine combine, bool predicate, const Source&) {
  using namespace explorer;
  Devices::World* const world = Devices::current;
  if (world->threads == 1) return predicate ? 1 : 0;
  require(predicate || combine == Combine::none, "a wait has not ended well");
  const auto threads = static_cast<std::size_t>(world->threads), mine = self % threads;
  Block& block = *world->blocks[self / threads];
  const std::size_t n = world->barriers[self]++;
  block.arrived[mine][n].store(1, std::memory_order_release);
  for (std::size_t t = 0; t < threads; ++t)
    if (t != mine)
      wait_until([&] { return block.arrived[t][n].load(std::memory_order_acquire) != 0; });
  return 1;
}

// A block is at most one warp. Its threads meet in the sync_warp() that follows a vote. So two
// threads have no more hand-offs than on a device, where a vote orders no memory.
unsigned vote(Vote, unsigned, bool predicate, const Source&) {
  explorer::require(predicate || explorer::Devices::current->threads == 1,
                    "a wait has not ended well");
  return predicate ? 1 : 0;
}
void sync_warp(unsigned, const Source& where) { barrier(Combine::none, false, where); }

cudaError_t launch(const Call& call, dim3 grid, dim3 block, std::size_t, cudaStream_t) {
  current_block->grid_dim = grid;
  current_block->block_dim = block;
  call.run(call.arguments.get());
  return cudaSuccess;
}
void outlived(const void*) {}

const char* why() { return ""; }

}  // namespace vgpu

const char* cudaGetErrorName(cudaError_t) { return "an error"; }
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
