#include "kernels/vgpu/api/wgmma.hpp"

#include <cstring>

#include "kernels/vgpu/async_proxy.hpp"
#include "kernels/vgpu/block.hpp"
#include "kernels/vgpu/order.hpp"

namespace vgpu {

namespace {

BlockRunner& runner_at(const Source& where) {
  active_runner->self().where = where;
  return *active_runner;
}
unsigned warp() { return active_runner->self().number / 32; }

void issue(void* const* brought) {
  Multiply lanes[32];
  for (unsigned l = 0; l < 32; ++l) lanes[l] = *static_cast<const Multiply*>(brought[l]);
  active_runner->async().issue(warp(), lanes);
}
void commit(void* const* /*brought*/) { active_runner->async().commit(warp()); }
void wait(void* const* brought) {
  active_runner->async().wait(warp(), *static_cast<const unsigned*>(brought[0]));
}

}  // namespace

std::uint32_t shared_address(const void* shared, const Source& where) {
  const Quiet quiet;
  BlockRunner& runner = runner_at(where);
  const std::uint32_t address = runner.shared_address(shared);
  if (address == 0) runner.stuck("an address outside of the block's dynamic shared memory");
  return address;
}

void barrier_init(void* barrier, unsigned arrivals, const Source& where) {
  const Quiet quiet;
  runner_at(where).async().init(barrier, arrivals);
}

// The order is that of the phase which the arrival belongs to, so it is declared before.
void barrier_expect(void* barrier, unsigned bytes, const Source& where) {
  const Quiet quiet;
  AsyncProxy& async = runner_at(where).async();
  declare_before(async.order(barrier, async.phase(barrier) & 1));
  async.expect(barrier, bytes);
}

void barrier_arrive(void* barrier, const Source& where) {
  const Quiet quiet;
  AsyncProxy& async = runner_at(where).async();
  declare_before(async.order(barrier, async.phase(barrier) & 1));
  async.arrive(barrier);
}

void barrier_wait(void* barrier, unsigned parity, const Source& where) {
  const Quiet quiet;
  BlockRunner& runner = runner_at(where);
  AsyncProxy& async = runner.async();
  if (runner.draw(4) == 0) async.deliver();
  while (!async.ended(barrier, parity)) runner.sleep(barrier, where);
  declare_after(async.order(barrier, parity));
}

void copy_box(void* to, const CUtensorMap& map, void* barrier, int x, int y, int z,
              const Source& where) {
  const Quiet quiet;
  runner_at(where).async().copy(to, map, barrier, {x, y, z});
}

void fence_async_proxy(const Source& where) {
  const Quiet quiet;
  runner_at(where).async().fence();
}

void multiply_async(Multiply multiply, const Source& where) {
  {
    const Quiet quiet;
    BlockRunner& runner = runner_at(where);
    if (!runner.self().multiplies_fenced)
      runner.stuck("wgmma without wgmma.fence after the thread has used its sums");
  }
  meet_together(issue, &multiply, where);
}

void fence_multiply(const Source& where) {
  const Quiet quiet;
  runner_at(where).self().multiplies_fenced = true;
}

void commit_multiply(const Source& where) { meet_together(commit, nullptr, where); }

void wait_multiply(unsigned may_remain, const Source& where) {
  meet_together(wait, &may_remain, where);
}

void use_sums(const float* sums, const Source& where) {
  const Quiet quiet;
  BlockRunner& runner = *active_runner;
  if (runner.async().in_flight(warp(), sums)) {
    runner.self().where = where;
    runner.stuck("a sum of wgmma is used before wgmma.wait_group");
  }
  runner.self().multiplies_fenced = false;
}

void set_registers(unsigned count, const Source& where) {
  const Quiet quiet;
  BlockRunner& runner = runner_at(where);
  if (count % 8 != 0 || count < 24 || count > 256)
    runner.stuck("setmaxnreg: the number is not 24, 32, ... 256");
}

}  // namespace vgpu
