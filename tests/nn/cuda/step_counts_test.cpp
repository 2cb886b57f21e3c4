// Counts the kernels that a training step launches, and the bytes that they read and write. Neither
// needs a GPU: the emulator launches the same kernels, and the profiler computes their bytes from
// their operands (kernels/work.hpp).
#include <fmt/format.h>
#include <map>

#include "runtime/autograd/autocast.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/device/profiler.hpp"
#include "runtime/nn/gpt.hpp"
#include "runtime/optim/optimizer.hpp"
#include "tests/support/catch.hpp"
#ifdef RINGSMITH_VGPU
#include "kernels/vgpu/counters.hpp"
#endif

using namespace ringsmith;

namespace {

// Heads of 64, as GPT-2 has, so that attention runs in bf16, too. The vocabulary is odd.
const GPTOptions kShape{.vocabulary = 517,
                        .context = 64,
                        .layers = 3,
                        .dim = 128,
                        .heads = 2,
                        .vocabulary_multiple = 128,
                        .gpt2_init = true};
constexpr std::int64_t kBatch = 2;

struct Work {
  double calls = 0, bytes = 0;
};
struct StepCounts {
  double launches = 0, copies = 0;      // by the emulator
  std::map<std::string, Work> kernels;  // by operation, from the profiler
  [[nodiscard]] double bytes() const {
    double sum = 0;
    for (const auto& [name, work] : kernels) sum += work.bytes;
    return sum;
  }
};

// The third step of bf16 training, in which nothing is allocated or initialised.
StepCounts count_step() {
  manual_seed(3);
  GPT gpt(kShape);
  const Device device = Device::cuda(0);
  gpt.to(device);
  AdamW optimizer(gpt.parameters(), {.lr = 1e-3});
  Generator g(5);
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < kBatch * (kShape.context + 1); ++i)
    tokens.push_back(randint(0, kShape.vocabulary, g));
  const Tensor all = from_vector(tokens, {kBatch, kShape.context + 1});
  const Tensor x = all.slice(1, 0, kShape.context).contiguous().to(device);
  const Tensor y = all.slice(1, 1, kShape.context + 1).contiguous().view({-1}).to(device);
  const auto step = [&] {
    optimizer.zero_grad();
    Tensor loss;
    {
      const Autocast autocast(DType::bf16);
      const Tensor logits = gpt(x);
      loss = cross_entropy(reshape(logits, {-1, kShape.vocabulary}), y);
    }
    loss.backward();
    clip_grad_norm_(gpt.parameters(), 1.0);
    optimizer.step();
    return loss.item<float>();
  };
  step();
  step();
  (void)profile::take_rows();
#ifdef RINGSMITH_VGPU
  (void)vgpu::take_counts();
#endif
  profile::enable(true);
  step();
  profile::enable(false);
  Stream::current(device).synchronize();
  StepCounts counts;
  for (const profile::Row& row : profile::take_rows())
    counts.kernels[row.name] = {static_cast<double>(row.calls), row.work.bytes};
#ifdef RINGSMITH_VGPU
  for (const vgpu::Count& c : vgpu::take_counts()) {
    fmt::print("{:6} {:10} {}\n", c.runs, c.bytes, c.name);
    if (c.name == "copy" || c.name == "fill")
      counts.copies += static_cast<double>(c.runs);
    else
      counts.launches += static_cast<double>(c.runs);
  }
#endif
  for (const auto& [name, work] : counts.kernels)
    fmt::print("{:30} {:5} {:12}\n", name, work.calls, work.bytes);
  fmt::print("launches {} copies {} bytes {}\n", counts.launches, counts.copies, counts.bytes());
  return counts;
}

}  // namespace

TEST_CASE("count a step", "[.][counts]") { (void)count_step(); }
