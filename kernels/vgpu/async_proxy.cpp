#include "kernels/vgpu/async_proxy.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "kernels/vgpu/block.hpp"
#include "kernels/vgpu/order.hpp"
#include "kernels/vgpu/tensor_map.hpp"

namespace vgpu {

namespace {

constexpr unsigned kSwizzled = 1;  // the layout type of the 128-byte swizzle, in bits 62 and 63

// Rows of 128 bytes, 8 of which are a group: the 16-byte parts of row r change places with those
// whose number differs in the bits of r.
std::uint32_t swizzled(std::uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

}  // namespace

void AsyncProxy::begin_block(std::byte* shared, std::size_t bytes, std::uint32_t first) {
  shared_ = shared;
  bytes_ = bytes;
  first_ = first;
}

void AsyncProxy::end_block() {
  if (!copies_.empty()) runner_.stuck("the block has ended, but a tensor copy is still in flight");
  seen_.clear();
  barriers_.clear();
  warps_.clear();
}

std::byte* AsyncProxy::place(std::uint32_t address, std::size_t bytes, const char* what) const {
  if (address < first_ || address - first_ + bytes > bytes_)
    runner_.stuck((std::string(what) + " is outside of the block's dynamic shared memory").c_str());
  return shared_ + (address - first_);
}

// ---- barriers ----

AsyncProxy::Barrier& AsyncProxy::find(const void* barrier, const char* what) {
  const auto found = barriers_.find(runner_.shared_address(barrier));
  if (found == barriers_.end())
    runner_.stuck((std::string(what) + ": there is no initialised mbarrier").c_str());
  return found->second;
}

void AsyncProxy::init(void* barrier, unsigned arrivals) {
  if (reinterpret_cast<std::uintptr_t>(barrier) % 8 != 0 || arrivals == 0 || arrivals >= 1U << 20)
    runner_.stuck("mbarrier.init: misaligned, or not 1 to 2^20 - 1 arrivals");
  const std::uint32_t address = runner_.shared_address(barrier);
  (void)place(address, 8, "an mbarrier");
  Barrier& b = barriers_[address];
  if (b.expected != 0) runner_.stuck("mbarrier.init of an mbarrier that is in use");
  b.expected = b.pending = arrivals;
}

// Ends the phase if nothing is missing.
void AsyncProxy::check(Barrier& b) {
  if (b.pending != 0) return;
  if (b.bytes < 0)
    runner_.stuck("more bytes have arrived at an mbarrier than arrive.expect_tx announced");
  if (b.bytes != 0) return;
  ++b.phase;
  b.pending = b.expected;
  for (const std::uint16_t thread : b.sleeping) runner_.wake(thread);
  b.sleeping.clear();
}

void AsyncProxy::expect(void* barrier, unsigned bytes) {
  find(barrier, "mbarrier.arrive.expect_tx").bytes += bytes;
  arrive(barrier);
}

void AsyncProxy::arrive(void* barrier) {
  Barrier& b = find(barrier, "mbarrier.arrive");
  if (b.pending == 0) runner_.stuck("more arrivals at an mbarrier than it was initialised for");
  --b.pending;
  check(b);
}

bool AsyncProxy::ended(void* barrier, unsigned parity) {
  Barrier& b = find(barrier, "mbarrier.try_wait");
  if (parity > 1) runner_.stuck("mbarrier.try_wait: the parity is neither 0 nor 1");
  if ((b.phase & 1) != parity) return true;
  b.sleeping.push_back(runner_.self().number);
  return false;
}

char* AsyncProxy::order(void* barrier, unsigned parity) {
  return &find(barrier, "an mbarrier").order[parity];
}
unsigned AsyncProxy::phase(void* barrier) { return find(barrier, "an mbarrier").phase; }

std::string AsyncProxy::describe(const void* barrier) const {
  const auto found = barriers_.find(runner_.shared_address(barrier));
  if (found == barriers_.end()) return "";
  const Barrier& b = found->second;
  return ", whose phase " + std::to_string(b.phase) + " lacks " + std::to_string(b.pending) +
         " arrivals and " + std::to_string(b.bytes) + " bytes";
}

// ---- copies ----

void AsyncProxy::fence() {
  seen_.assign(shared_, shared_ + bytes_);
  for (auto& [address, barrier] : barriers_) barrier.fenced = true;
}

void AsyncProxy::copy(void* to, const CUtensorMap& map, void* barrier, const int (&at)[3]) {
  Barrier& b = find(barrier, "a tensor copy");
  if (!b.fenced)
    runner_.stuck("a tensor copy uses an mbarrier that no fence.proxy.async has published");
  const TensorMap* const tensor = TensorMap::in(map);
  if (tensor == nullptr) runner_.stuck("a tensor copy whose tensor map was never encoded");
  const std::uint32_t address = runner_.shared_address(to);
  if (address % 128 != 0) runner_.stuck("a tensor copy to an address that is no multiple of 128");
  (void)place(address, tensor->box_bytes(), "the target of a tensor copy");
  const Copy copy{address, map, &b, {at[0], at[1], at[2]}};
  if (runner_.draw(2) == 0)
    arrive(copy);
  else
    copies_.push_back(copy);
}

bool AsyncProxy::deliver() {
  if (copies_.empty()) return false;
  std::swap(copies_[runner_.draw(copies_.size())], copies_.back());
  const Copy copy = copies_.back();
  copies_.pop_back();
  arrive(copy);
  return true;
}

void AsyncProxy::arrive(const Copy& copy) {
  const TensorMap& map = *TensorMap::in(copy.map);
  if (seen_.empty()) seen_.assign(bytes_, std::byte{0});
  std::uint32_t to = copy.to;
  for (unsigned z = 0; z < map.box[2]; ++z)
    for (unsigned y = 0; y < map.box[1]; ++y)
      for (unsigned x = 0; x < map.box[0]; x += kPart, to += 16) {
        std::byte part[16]{};
        for (unsigned i = 0; i < kPart; ++i)
          if (const std::byte* from = map.element(copy.at[0] + static_cast<std::int64_t>(x) + i,
                                                  copy.at[1] + static_cast<std::int64_t>(y),
                                                  copy.at[2] + static_cast<std::int64_t>(z)))
            std::memcpy(part + 2 * i, from, 2);
        const std::size_t offset = swizzled(to) - first_;
        std::memcpy(shared_ + offset, part, sizeof part);
        std::memcpy(seen_.data() + offset, part, sizeof part);
      }
  copy.barrier->bytes -= static_cast<std::int64_t>(map.box_bytes());
  check(*copy.barrier);
}

// ---- products ----

// One number of an operand. With a = the address in the descriptor, which is swizzled afterwards:
//
//   stored by line   a + line / 8 * stride + line % 8 * 128 + 2 k
//   stored by k      a + line / 64 * leading + k / 8 * stride + k % 8 * 128 + 2 (line % 64)
float AsyncProxy::element(std::uint64_t descriptor, bool by_lines, unsigned line,
                          unsigned k) const {
  const auto field = [&](unsigned from) {
    return static_cast<std::uint32_t>(descriptor >> from & 0x3fff) << 4;
  };
  const std::uint32_t address = field(0), leading = field(16), stride = field(32);
  const std::uint32_t at =
      by_lines ? address + line / 64 * leading + k / 8 * stride + k % 8 * 128 + line % 64 * 2
               : address + line / 8 * stride + line % 8 * 128 + k * 2;
  const std::uint32_t physical = swizzled(at);
  std::uint16_t bits = 0;
  std::memcpy(&bits, place(physical, 2, "an operand of wgmma"), 2);
  if (seen_.empty() || std::memcmp(seen_.data() + (physical - first_), &bits, 2) != 0)
    runner_.stuck(
        "wgmma reads shared memory that a thread has written without fence.proxy.async, or that "
        "nothing has written");
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

void AsyncProxy::multiply(const Product& product, unsigned warp) const {
  const Multiply& one = product.lanes[0];
  std::vector<float> a(16UL * 16), b(std::size_t{one.n} * 16);
  for (unsigned k = 0; k < 16; ++k) {
    for (unsigned i = 0; i < 16; ++i)
      a[i * 16 + k] = element(one.a, one.a_by_lines, warp % 4 * 16 + i, k);
    for (unsigned j = 0; j < one.n; ++j) b[k * one.n + j] = element(one.b, one.b_by_lines, j, k);
  }
  std::vector<float> c(one.n);
  for (unsigned i = 0; i < 16; ++i) {
    std::fill(c.begin(), c.end(), 0.0F);
    for (unsigned k = 0; k < 16; ++k)
      for (unsigned j = 0; j < one.n; ++j) c[j] += a[i * 16 + k] * b[k * one.n + j];
    for (unsigned j = 0; j < one.n; ++j) {
      float& sum = product.lanes[i % 8 * 4 + j % 8 / 2].sums[j / 8 * 4 + i / 8 * 2 + j % 2];
      sum = one.add ? sum + c[j] : c[j];
    }
  }
}

void AsyncProxy::issue(unsigned warp, const Multiply (&lanes)[32]) {
  const Multiply& one = lanes[0];
  for (const Multiply& lane : lanes)
    if (lane.a != one.a || lane.b != one.b || lane.n != one.n || lane.add != one.add ||
        lane.a_by_lines != one.a_by_lines || lane.b_by_lines != one.b_by_lines)
      runner_.stuck("the lanes of a warp issue different wgmma instructions");
  for (const std::uint64_t descriptor : {one.a, one.b})
    if (descriptor >> 62 != kSwizzled || (descriptor >> 49 & 7) != 0)
      runner_.stuck("wgmma: only the 128-byte swizzle without a base offset is modelled");
  if (one.n % 8 != 0 || one.n == 0 || one.n > 256) runner_.stuck("wgmma: n is not 8, 16, ... 256");
  if (warps_.size() <= warp) warps_.resize(warp + 1UL);
  Warp& w = warps_[warp];
  Product& product = w.products.emplace_back();
  std::copy(std::begin(lanes), std::end(lanes), std::begin(product.lanes));
  product.group = w.groups;
  product.done = false;
  if (runner_.draw(2) == 0) return;
  for (Product& p : w.products)
    if (!std::exchange(p.done, true)) multiply(p, warp);
}

void AsyncProxy::commit(unsigned warp) {
  if (warps_.size() > warp) ++warps_[warp].groups;
}

void AsyncProxy::wait(unsigned warp, unsigned may_remain) {
  if (warps_.size() <= warp) return;
  Warp& w = warps_[warp];
  std::size_t finished = 0;
  for (Product& p : w.products) {
    if (p.group + may_remain >= w.groups) break;
    if (!std::exchange(p.done, true)) multiply(p, warp);
    ++finished;
  }
  w.products.erase(w.products.begin(), w.products.begin() + static_cast<std::ptrdiff_t>(finished));
}

bool AsyncProxy::in_flight(unsigned warp, const float* sums) const {
  if (warps_.size() <= warp) return false;
  for (const Product& p : warps_[warp].products)
    for (const Multiply& lane : p.lanes)
      if (lane.sums == sums) return true;
  return false;
}

}  // namespace vgpu
