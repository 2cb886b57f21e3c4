// A training step that a CUDA graph repeats: the bits of eager steps, one launch a step, memory
// that is nobody else's, and refusals that name the reason.
#include "runtime/optim/step_graph.hpp"

#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/autograd/autocast.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/device/memory.hpp"
#include "runtime/device/profiler.hpp"
#include "runtime/device/transfer.hpp"
#include "runtime/nn/gpt.hpp"
#include "runtime/parallel/ddp.hpp"
#include "tests/nn/support.hpp"
#include "tests/support/catch.hpp"
#ifdef RINGSMITH_VGPU
#include "kernels/vgpu/counters.hpp"
#endif

using namespace ringsmith;
using namespace ringsmith::test;
using Catch::Matchers::ContainsSubstring;

namespace {

const Device kDevice = Device::cuda(0);
constexpr std::int64_t kVocabulary = 65, kContext = 32, kBatch = 2;

GPTOptions shape(double dropout = 0) {
  return {.vocabulary = kVocabulary,
          .context = kContext,
          .layers = 2,
          .dim = 64,
          .heads = 1,
          .dropout = dropout,
          .vocabulary_multiple = 128,
          .gpt2_init = true};
}

using Batch = std::vector<Tensor>;
Batch batch_of(Generator& g, std::int64_t rows = kBatch) {
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < rows * (kContext + 1); ++i)
    tokens.push_back(randint(0, kVocabulary, g));
  const Tensor all = from_vector(tokens, {rows, kContext + 1});
  return {all.slice(1, 0, kContext).contiguous(), all.slice(1, 1, kContext + 1).contiguous()};
}

struct Setup {
  bool bf16 = false;
  double dropout = 0;
  bool sgd = false;
  bool host_counts = false;  // step counts as arguments of AdamW's kernels
};

// A GPT, its optimizer and its step.
struct Training {
  GPT gpt;
  std::unique_ptr<Optimizer> optimizer;
  bool bf16;
  std::function<void()> extra;  // more work in the step

  explicit Training(const Setup& setup = {})
      : gpt((manual_seed(3), shape(setup.dropout))), bf16(setup.bf16) {
    gpt.to(kDevice);
    if (setup.sgd)
      optimizer = std::make_unique<SGD>(gpt.parameters(), SGDOptions{.lr = 1e-2});
    else
      optimizer =
          std::make_unique<AdamW>(gpt.parameters(), AdamOptions{.lr = 1e-3, .weight_decay = 1e-2});
    if (!setup.sgd && !setup.host_counts) optimizer->count_on_device();
  }
  Tensor step(const Batch& batch) {
    optimizer->zero_grad();
    Tensor loss;
    {
      const Autocast autocast(DType::bf16, bf16);
      loss = cross_entropy(reshape(gpt(batch[0]), {-1, kVocabulary}), batch[1].view({-1}));
    }
    loss.backward();
    (void)clip_grad_norm_(gpt.parameters(), 0.5);
    if (extra) extra();
    optimizer->step();
    return loss;
  }
  [[nodiscard]] StepGraph graph() {
    return {*optimizer, [this](const Batch& batch) { return step(batch); }};
  }
};

Batch to_device(const Batch& batch) { return {batch[0].to(kDevice), batch[1].to(kDevice)}; }
float value_of(const Tensor& loss) { return loss.item<float>(); }

enum class Kind : std::uint8_t { eager, counted, graph };
struct Trace {
  std::vector<float> losses;
  std::uint64_t parameters = 0, gradients = 0;
  std::vector<float> state;
  std::int64_t counted = 0;
  bool operator==(const Trace&) const = default;
};

std::uint64_t hash_of_gradients(const GPT& gpt) {
  std::uint64_t sum = 0;
  for (const Tensor& p : gpt.parameters())
    for (const float x : p.grad().to_vector<float>())
      sum = sum * 1'099'511'628'211ULL + std::bit_cast<std::uint32_t>(x);
  return sum;
}

Trace train(Kind kind, bool bf16, int steps) {
  Training t({.bf16 = bf16, .host_counts = kind == Kind::eager});
  std::optional<StepGraph> graph;
  if (kind == Kind::graph) graph.emplace(*t.optimizer, [&](const Batch& b) { return t.step(b); });
  const LrSchedule schedule = cosine_lr(3e-3, 3, steps, 1e-4);
  Generator g(5);
  Trace out;
  for (int i = 0; i < steps; ++i) {
    const Batch batch = batch_of(g);
    t.optimizer->set_lr(schedule(i));
    out.losses.push_back(value_of(graph ? (*graph)(batch) : t.step(to_device(batch))));
  }
  if (graph) CHECK(graph->is_captured());
  out.parameters = hash_of(t.gpt);
  out.gradients = hash_of_gradients(t.gpt);
  const StateDict state = t.optimizer->state_dict();
  out.counted = state.at("state.0.step").item<std::int64_t>();
  out.state = state.at("state.2.exp_avg_sq").to_vector<float>();
  return out;
}

}  // namespace

TEST_CASE("20 replayed steps have the bits of eager steps, in f32 and in bf16", "[cuda]") {
  for (const bool bf16 : {false, true}) {
    INFO((bf16 ? "bf16" : "f32"));
    const Trace eager = train(Kind::counted, bf16, 20), graph = train(Kind::graph, bf16, 20);
    CHECK(graph.losses == eager.losses);
    CHECK(graph.parameters == eager.parameters);
    CHECK(graph.gradients == eager.gradients);
    CHECK(graph.state == eager.state);
    CHECK(graph.counted == 20);
    CHECK(eager.losses.back() != eager.losses.front());
    // Counts as arguments: the same, except that a GPU's pow() may round in another way.
    const Trace arguments = train(Kind::eager, bf16, 20);
#ifdef RINGSMITH_VGPU
    CHECK(arguments == eager);
#endif
    for (std::size_t i = 0; i < 20; ++i)
      CHECK(std::abs(arguments.losses[i] - eager.losses[i]) <= 1e-4F * eager.losses[i]);
  }
}

TEST_CASE("a replay is one launch of a graph, and memory does not grow", "[cuda]") {
  Training t({.bf16 = true});
  StepGraph graph = t.graph();
  Generator g(5);
  for (int i = 0; i < StepGraph::kEagerSteps; ++i) (void)value_of(graph(batch_of(g)));
  const AllocatorStats eager = device_allocator::stats(kDevice);
  (void)value_of(graph(batch_of(g)));
  const AllocatorStats captured = device_allocator::stats(kDevice);
  CHECK(graph.graph().nodes() > 100);
  CHECK(graph.graph().memory().reserved().value > 0);
  // The graph takes the memory of the eager steps.
  CHECK(captured.reserved.value <= eager.reserved.value * 11 / 10);
#ifdef RINGSMITH_VGPU
  Stream::current(kDevice).synchronize();
  (void)vgpu::take_calls();
#endif
  constexpr int kSteps = 10;
  for (int i = 0; i < kSteps; ++i) {
    t.optimizer->set_lr(1e-3 / (i + 2));
    (void)graph(batch_of(g));
  }
  const AllocatorStats later = device_allocator::stats(kDevice);
  CHECK(later.system_allocations == captured.system_allocations);
  CHECK(later.allocations == captured.allocations);
  CHECK(later.current == captured.current);
#ifdef RINGSMITH_VGPU
  const vgpu::Calls calls = vgpu::take_calls();
  CHECK(calls.graphs == kSteps);
  CHECK(calls.kernels == 0);
  CHECK(calls.copies == 3 * kSteps);  // tokens, targets, learning rate
#endif
}

TEST_CASE("graphs that are made and destroyed leave no memory behind", "[cuda]") {
  Training t;
  Generator g(5);
  std::uint64_t reserved = 0, current = 0;
  for (int i = 0; i < 4; ++i) {
    StepGraph graph = t.graph();
    for (int n = 0; n < 4; ++n) (void)value_of(graph(batch_of(g)));
    const AllocatorStats now = device_allocator::stats(kDevice);
    if (i == 1) reserved = now.reserved.value, current = now.current.value;
    if (i > 1) CHECK(now.reserved.value == reserved);
    if (i > 1) CHECK(now.current.value == current);
  }
}

TEST_CASE("no other tensor gets memory of a living graph", "[cuda]") {
  Training t, twin;
  StepGraph graph = t.graph();
  Generator g(5), same(5);
  for (int i = 0; i < 3; ++i) {
    (void)graph(batch_of(g));
    (void)twin.step(to_device(batch_of(same)));
  }
  // Eager steps allocate tensors of all sizes that the captured step has, fill them, and keep them.
  Generator more(9);
  std::vector<Tensor> kept;
  t.optimizer->zero_grad();  // frees the graph's gradients
  const AllocatorStats before = device_allocator::stats(kDevice);
  for (std::size_t bytes = 64; bytes <= (4U << 20); bytes += bytes / 8)
    for (int i = 0; i < 8; ++i) {
      kept.push_back(Tensor::empty({static_cast<std::int64_t>(bytes / 4)}, {DType::f32, kDevice}));
      kept.back().fill_(std::numeric_limits<double>::quiet_NaN());
    }
  for (int i = 0; i < 3; ++i) {
    CHECK(value_of(graph(batch_of(g))) == value_of(twin.step(to_device(batch_of(same)))));
    for (const Tensor& p : t.gpt.parameters()) CHECK(p.grad().defined());
  }
  CHECK(hash_of(t.gpt) == hash_of(twin.gpt));
  for (const Tensor& k : kept) {
    bool all = true;
    for (const float x : k.to_vector<float>()) all = all && std::isnan(x);
    CHECK(all);
  }
  CHECK(device_allocator::stats(kDevice).allocations > before.allocations);
}

TEST_CASE("a batch of another shape or dtype is refused by its name, before anything runs",
          "[cuda]") {
  Training t;
  StepGraph graph = t.graph();
  Generator g(5);
  for (int i = 0; i < 4; ++i) (void)graph(batch_of(g));
  const std::uint64_t before = hash_of(t.gpt);
  CHECK_THROWS_WITH(graph(batch_of(g, 3)),
                    ContainsSubstring("tensor 0 of the batch is i64[3, 32]") &&
                        ContainsSubstring("captured for i64[2, 32]"));
  const Batch batch = batch_of(g);
  CHECK_THROWS_WITH(graph({batch[0], batch[1].to(DType::i32)}), ContainsSubstring("i32[2, 32]"));
  CHECK_THROWS_WITH(graph({batch[0]}), ContainsSubstring("takes 2 tensors, got 1"));
  CHECK(hash_of(t.gpt) == before);
  CHECK(std::isfinite(value_of(graph(batch))));
}

TEST_CASE("a step that cannot be captured is refused with the reason, and the stream stays usable",
          "[cuda]") {
  struct Case {
    const char* reason;
    std::function<void(Training&)> extra;
  };
  const std::vector<Case> cases{
      {"read a GPU's memory on the host",
       [](Training& t) { (void)value_of(t.gpt.pos.weight.grad().select(0, 0).select(0, 0)); }},
      {"read a GPU's memory on the host",
       [](Training& t) {
         (void)clip_grad_norm_(t.gpt.parameters(), 1.0, /*error_if_nonfinite=*/true);
       }},
      {"wait for the GPU", [](Training&) { synchronize(kDevice); }},
      {"copy from the host to a GPU",
       [](Training&) {
         (void)from_vector<float>({1, 2}).to(kDevice);
       }},
      {"set the learning rate", [](Training& t) { t.optimizer->set_lr(1e-4); }},
      {"cudaErrorStreamCaptureUnsupported",
       [](Training&) { (void)Event::record(Stream::create(kDevice)).has_happened(); }},
  };
  for (const Case& c : cases) {
    INFO(c.reason);
    Training t, twin;
    StepGraph graph = t.graph();
    Generator g(5), same(5);
    for (int i = 0; i < StepGraph::kEagerSteps; ++i) {
      (void)graph(batch_of(g));
      (void)twin.step(to_device(batch_of(same)));
    }
    t.extra = [&] { c.extra(t); };
    const Batch batch = batch_of(g);
    CHECK_THROWS_WITH(graph(batch), ContainsSubstring("the step cannot be captured") &&
                                        ContainsSubstring(c.reason));
    CHECK_FALSE(graph.is_captured());
    // Nothing has run: an eager step continues from the same parameters and the same count.
    t.extra = {};
    (void)batch_of(same);
    CHECK(value_of(t.step(to_device(batch))) == value_of(twin.step(to_device(batch))));
    CHECK(hash_of(t.gpt) == hash_of(twin.gpt));
    // The same object captures the step when it can be captured.
    CHECK(value_of(graph(batch)) == value_of(twin.step(to_device(batch))));
    CHECK(graph.is_captured());
    CHECK(hash_of(t.gpt) == hash_of(twin.gpt));
    CHECK(t.optimizer->state_dict().at("state.0.step").item<std::int64_t>() == 4);
  }
}

TEST_CASE("random numbers, SGD, the CPU and the profiler are refused", "[cuda]") {
  Generator g(5);
  Training dropout({.dropout = 0.2});
  StepGraph graph = dropout.graph();
  for (int i = 0; i < StepGraph::kEagerSteps; ++i) (void)graph(batch_of(g));
  CHECK_THROWS_WITH(graph(batch_of(g)), ContainsSubstring("draw random numbers (dropout)"));

  Training sgd({.sgd = true});
  CHECK_THROWS_WITH(sgd.graph(), ContainsSubstring("use Adam or AdamW"));
  (void)sgd.step(to_device(batch_of(g)));
  CHECK_THROWS_WITH(DeviceGraph(kDevice, [&] { sgd.optimizer->step(); }),
                    ContainsSubstring("learning rate") && ContainsSubstring("arguments"));

  GPT on_cpu(shape());
  AdamW adam(on_cpu.parameters(), {.lr = 1e-3});
  CHECK_THROWS_WITH(StepGraph(adam, [](const Batch& b) { return b[0]; }), ContainsSubstring("cpu"));

  Training t;
  StepGraph profiled = t.graph();
  for (int i = 0; i < StepGraph::kEagerSteps; ++i) (void)profiled(batch_of(g));
  profile::enable(true);
  CHECK_THROWS_WITH(profiled(batch_of(g)), ContainsSubstring("profiler"));
  profile::enable(false);
  (void)profile::take_rows();
  CHECK(std::isfinite(value_of(profiled(batch_of(g)))));
}

TEST_CASE("a replay reports a bad token like an eager step, and later replays are good", "[cuda]") {
  Training t;
  StepGraph graph = t.graph();
  Generator g(5);
  for (int i = 0; i < 3; ++i) (void)graph(batch_of(g));
  Batch bad = batch_of(g);
  bad[0].span<std::int64_t>()[7] = 99;
  const Tensor loss = graph(bad);
  CHECK_THROWS_WITH(value_of(loss), ContainsSubstring("index 99 at position 7 is outside [0, 65)"));
  // A replay that is queued before the host looks does not hide the error or its value.
  Training second;
  StepGraph again = second.graph();
  for (int i = 0; i < 3; ++i) (void)again(batch_of(g));
  bad[0].span<std::int64_t>()[7] = 98;
  findings::look();
  (void)again(bad);
  Tensor latest;
  CHECK_THROWS_WITH(
      [&] {
        latest = again(batch_of(g));
        (void)value_of(latest);
      }(),
      ContainsSubstring("index 98 at position 7"));
  Training third;
  StepGraph good = third.graph();
  for (int i = 0; i < 5; ++i) CHECK(std::isfinite(value_of(good(batch_of(g)))));
}

TEST_CASE("eager steps and evaluations and a loaded state between replays", "[cuda]") {
  Training t, twin;
  StepGraph graph = t.graph();
  Generator g(5), same(5);
  const auto check = [&](bool replayed) {
    const float got = value_of(replayed ? graph(batch_of(g)) : t.step(to_device(batch_of(g))));
    CHECK(got == value_of(twin.step(to_device(batch_of(same)))));
    CHECK(hash_of(t.gpt) == hash_of(twin.gpt));
  };
  for (int i = 0; i < 4; ++i) check(true);
  check(false);  // the count on the GPU includes eager steps
  check(true);
  t.optimizer->zero_grad();
  check(true);
  {
    // The guard keeps the casts of the parameters that the evaluation makes. A replay changes the
    // parameters, so the casts must not be used again.
    const Autocast autocast(DType::bf16);
    const Batch batch = to_device(batch_of(g));
    (void)batch_of(same);
    const auto logits = [&](GPT& gpt) {
      const NoGradGuard no_grad;
      return gpt(batch[0]).to(DType::f32).to_vector<float>();
    };
    const std::vector<float> before = logits(t.gpt);
    CHECK(before == logits(twin.gpt));
    check(true);
    const std::vector<float> after = logits(t.gpt);
    CHECK(after == logits(twin.gpt));
    CHECK(after != before);
  }
  // load_state_dict replaces the state, whose addresses are in the graph.
  const StateDict state = t.optimizer->state_dict();
  t.optimizer->load_state_dict(state);
  CHECK_THROWS_WITH(graph(batch_of(g)), ContainsSubstring("use another StepGraph"));
  (void)batch_of(same);
  StepGraph next = t.graph();
  for (int i = 0; i < 4; ++i) {
    const float got = value_of(next(batch_of(g)));
    CHECK(got == value_of(twin.step(to_device(batch_of(same)))));
  }
  CHECK(hash_of(t.gpt) == hash_of(twin.gpt));
  CHECK(t.optimizer->state_dict().at("state.0.step").item<std::int64_t>() ==
        twin.optimizer->state_dict().at("state.0.step").item<std::int64_t>());
}
