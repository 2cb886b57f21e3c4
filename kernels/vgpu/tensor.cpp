#include "kernels/vgpu/api/tensor.hpp"

#include <bit>
#include <cstring>

#include "kernels/vgpu/block.hpp"
#include "kernels/vgpu/order.hpp"

namespace vgpu {

namespace {

struct Rows {
  const void* row;
  std::uint32_t to[4];
};

// ThreadSanitizer checks this read, and attributes it to the lane that arrived last.
std::uint32_t element(const void* row, unsigned i) {
  const Loud loud;
  return static_cast<const std::uint16_t*>(row)[i];
}

template <bool transposed>
void read_rows(void* const* brought) {
  const auto lane = [&](unsigned l) -> Rows& { return *static_cast<Rows*>(brought[l]); };
  for (unsigned l = 0; l < 32; ++l)
    for (unsigned m = 0; m < 4; ++m) {
      const unsigned far = l / 4, near = l % 4 * 2;
      const auto at = [&](unsigned i) {
        return transposed ? element(lane(8 * m + near + i).row, far)
                          : element(lane(8 * m + far).row, near + i);
      };
      lane(l).to[m] = at(0) | at(1) << 16;
    }
}

struct Fragments {
  float* sums;
  const std::uint32_t *a, *b;
};

float low(std::uint32_t two) { return std::bit_cast<float>(two << 16); }
float high(std::uint32_t two) { return std::bit_cast<float>(two & 0xffff0000U); }

// c (16 x 8) += a (16 x 16) b (16 x 8), in the layouts of kernels/cuda/mma.cuh.
void multiply(void* const* brought) {
  const auto lane = [&](unsigned l) -> Fragments& { return *static_cast<Fragments*>(brought[l]); };
  float a[16][16], b[16][8];
  for (unsigned l = 0; l < 32; ++l) {
    const Fragments& f = lane(l);
    const unsigned g = l / 4, t = l % 4 * 2;
    for (unsigned r = 0; r < 4; ++r) {
      a[g + r % 2 * 8][t + r / 2 * 8] = low(f.a[r]);
      a[g + r % 2 * 8][t + r / 2 * 8 + 1] = high(f.a[r]);
    }
    for (unsigned r = 0; r < 2; ++r) {
      b[t + r * 8][g] = low(f.b[r]);
      b[t + r * 8 + 1][g] = high(f.b[r]);
    }
  }
  float c[16][8] = {};
  for (unsigned i = 0; i < 16; ++i)
    for (unsigned k = 0; k < 16; ++k)
      for (unsigned j = 0; j < 8; ++j) c[i][j] += a[i][k] * b[k][j];
  for (unsigned l = 0; l < 32; ++l)
    for (unsigned r = 0; r < 4; ++r) lane(l).sums[r] += c[l / 4 + r / 2 * 8][l % 4 * 2 + r % 2];
}

constexpr unsigned kCopyBytes = 16;

void arrive(const AsyncCopy& copy) {
  const Loud loud;
  std::memcpy(copy.to, copy.from, copy.bytes);
  std::memset(static_cast<std::byte*>(copy.to) + copy.bytes, 0, kCopyBytes - copy.bytes);
}

}  // namespace

void load_matrices(std::uint32_t (&to)[4], const void* row, bool transposed, const Source& where) {
  Rows mine{row, {}};
  meet_together(transposed ? read_rows<true> : read_rows<false>, &mine, where);
  std::memcpy(to, mine.to, sizeof to);
}

void multiply_fragments(float (&sums)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                        const Source& where) {
  Fragments mine{sums, a, b};
  meet_together(multiply, &mine, where);
}

void copy_async(void* to, const void* from, unsigned bytes, const Source& where) {
  const Quiet quiet;
  BlockRunner& runner = *active_runner;
  Thread& t = runner.self();
  t.where = where;
  const auto misaligned = [](const void* p) {
    return reinterpret_cast<std::uintptr_t>(p) % kCopyBytes != 0;
  };
  if (bytes > kCopyBytes) runner.stuck("cp.async of more than 16 bytes");
  if (misaligned(to) || (bytes > 0 && misaligned(from)))
    runner.stuck("cp.async of 16 bytes between addresses that are not multiples of 16");
  const AsyncCopy copy{to, from, bytes, t.groups};
  if (runner.draw(2) == 0)
    arrive(copy);
  else
    t.copies.push_back(copy);
}

void commit_copies() {
  const Quiet quiet;
  ++active_runner->self().groups;
}

void wait_for_copies(unsigned may_remain) {
  const Quiet quiet;
  Thread& t = active_runner->self();
  std::size_t kept = 0;
  for (const AsyncCopy& copy : t.copies) {
    if (copy.group + may_remain < t.groups)
      arrive(copy);
    else
      t.copies[kept++] = copy;
  }
  t.copies.resize(kept);
}

}  // namespace vgpu
