// step_counts LAYERS DIM HEADS VOCABULARY BATCH CONTEXT [tied] [clip]: trains such a GPT in
// bf16 on the emulator and prints the work of the third step, in which nothing is allocated or
// initialised:
//
//   operation NAME CALLS FLOP BYTES   by the profiler, from kernels' operands (kernels/work.hpp)
//   launch NAME RUNS                  by the emulator, which launches the kernels that a GPU would
//   copy NAME RUNS BYTES
//   parameters COUNT
//
// The step is train_bench's: forward, backward, an update by AdamW. "clip" limits the norm of the
// gradients before the update; "tied" shares the matrix of the head with the embedding of tokens.
// step_table.py computes the step of GPT-2 from the counts of several small shapes.
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/matmul.hpp"
#include "kernels/vgpu/counters.hpp"
#include "runtime/autograd/autocast.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/profiler.hpp"
#include "runtime/nn/gpt.hpp"
#include "runtime/optim/optimizer.hpp"

using namespace ringsmith;

namespace {

int count_step(int argc, char** argv) {
  const std::string usage =
      "usage: step_counts LAYERS DIM HEADS VOCABULARY BATCH CONTEXT [tied] [clip]";
  require(argc >= 7, usage);
  bool tied = false, clip = false;
  for (int i = 7; i < argc; ++i) {
    const std::string_view word = argv[i];
    require(word == "tied" || word == "clip", "'" + std::string(word) + "' is unknown; " + usage);
    (word == "tied" ? tied : clip) = true;
  }
  const auto number = [&](int i) {
    constexpr std::int64_t kMost = 1 << 20;
    const std::string_view text = argv[i];
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
    require(error == std::errc() && end == text.end() && value >= 1 && value <= kMost,
            "'" + std::string(text) + "' is not a whole number from 1 to 1048576; " + usage);
    return value;
  };
  const std::int64_t vocabulary = number(4), batch = number(5), context = number(6);
  // By default the emulator computes attention and products without tensor cores, which is faster
  // there. With this version it launches the kernels that a GPU would, and one emulated call of
  // cuBLASLt for each product, of which a GPU makes one or several kernels.
  kernels::cuda::set_matmul_version(7);
  manual_seed(3);
  GPT gpt({.vocabulary = vocabulary,
           .context = context,
           .layers = static_cast<int>(number(1)),
           .dim = number(2),
           .heads = static_cast<int>(number(3)),
           .tied = tied,
           .vocabulary_multiple = 128,
           .gpt2_init = true});
  const Device device = Device::cuda(0);
  gpt.to(device);
  AdamW optimizer(gpt.parameters(), {.lr = 1e-3});
  Generator g(5);
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < batch * (context + 1); ++i)
    tokens.push_back(randint(0, vocabulary, g));
  const Tensor all = from_vector(tokens, {batch, context + 1});
  const Tensor x = all.slice(1, 0, context).contiguous().to(device);
  const Tensor y = all.slice(1, 1, context + 1).contiguous().view({-1}).to(device);
  const auto step = [&] {
    optimizer.zero_grad();
    Tensor loss;
    {
      const Autocast autocast(DType::bf16);
      const Tensor logits = gpt(x);
      loss = cross_entropy(reshape(logits, {-1, vocabulary}), y);
    }
    loss.backward();
    if (clip) clip_grad_norm_(gpt.parameters(), 1.0);
    optimizer.step();
    return loss.item<float>();
  };
  step();
  step();
  (void)profile::take_rows();
  (void)vgpu::take_counts();
  profile::enable(true);
  step();
  profile::enable(false);
  Stream::current(device).synchronize();
  for (const profile::Row& row : profile::take_rows())
    std::printf("operation\t%s\t%lld\t%.17g\t%.17g\n", row.name.c_str(),
                static_cast<long long>(row.calls), row.work.flop, row.work.bytes);
  for (const vgpu::Count& c : vgpu::take_counts()) {
    const auto runs = static_cast<unsigned long long>(c.runs);
    if (c.name == "copy" || c.name == "fill")
      std::printf("copy\t%s\t%llu\t%llu\n", c.name.c_str(), runs,
                  static_cast<unsigned long long>(c.bytes));
    else
      std::printf("launch\t%s\t%llu\n", c.name.c_str(), runs);
  }
  std::int64_t parameters = 0;
  for (const Tensor& p : gpt.parameters()) parameters += p.numel();
  std::printf("parameters\t%lld\n", static_cast<long long>(parameters));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_main("step_counts", [&] { return count_step(argc, argv); });
}
