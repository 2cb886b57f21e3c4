// A small GPT, trained by ranks among which it is split, and by one process for comparison.
#pragma once

#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/beyond/gpt_stage.hpp"
#include "runtime/parallel/beyond/pipeline.hpp"
#include "tests/parallel/ranks.hpp"

namespace ringsmith::test {

constexpr std::int64_t kMeshTokens = 12;  // of a sequence: 2, 3 and 4 ranks divide it
constexpr std::int64_t kMeshRows = 2;     // sequences of a microbatch

inline GPTOptions small_gpt() {
  return {.vocabulary = 11, .context = kMeshTokens, .layers = 4, .dim = 24, .heads = 12};
}

// Returns equal models for the ranks. The calling thread draws all of them, because threads must
// not share the default generator.
inline std::vector<std::unique_ptr<GPT>> equal_gpts(int count, const GPTOptions& options) {
  std::vector<std::unique_ptr<GPT>> out;
  for (int i = 0; i < count; ++i) {
    manual_seed(5);
    out.push_back(std::make_unique<GPT>(options));
  }
  return out;
}

struct TokenSequences {
  Tensor inputs, targets;  // (rows, tokens) of i64
};
inline TokenSequences sequences(const GPTOptions& options, unsigned number) {
  std::mt19937 random(number);
  const auto draw = [&] {
    std::vector<std::int64_t> values(static_cast<std::size_t>(kMeshRows * kMeshTokens));
    for (std::int64_t& v : values)
      v = static_cast<std::int64_t>(random() % static_cast<unsigned>(options.vocabulary));
    return from_vector(values, {kMeshRows, kMeshTokens});
  };
  const Tensor inputs = draw();
  return {inputs, draw()};
}

// Returns the contribution of one of `count` microbatches to the loss of a step.
inline Tensor share_of_loss(const Tensor& logits, const Tensor& targets, int count) {
  const Tensor loss = cross_entropy(view(logits, {-1, logits.size(-1)}), view(targets, {-1}));
  return count > 1 ? mul(loss, 1.0 / count) : loss;
}

constexpr double kMeshClip = 0.5;
constexpr unsigned kMeshSteps = 3;
// Adam would turn the rounding errors of gradients that are 0 (of the keys' biases) into steps of
// full size.
inline SGDOptions mesh_sgd() { return {.lr = 0.2, .momentum = 0.9}; }

struct MeshRun {
  std::vector<double> losses, norms;        // by step
  std::map<std::string, Values> gradients;  // of the first step, unclipped, by name
  StateDict state;                          // whole, after the last step; on the first rank
  std::vector<int> stored;                  // microbatches, by step
};

inline std::map<std::string, Values> gradients_of(const Module& model) {
  std::map<std::string, Values> out;
  for (const auto& [name, p] : model.named_parameters())
    out[name] = {p.grad().defined() ? p.grad().to_vector<float>() : std::vector<float>{}};
  return out;
}

// Trains in one process, which accumulates the gradients of `count` microbatches in each step.
inline MeshRun on_one_process(const GPTOptions& options, int count) {
  const auto model = std::move(equal_gpts(1, options).front());
  SGD optimizer(model->parameters(), mesh_sgd());
  MeshRun out;
  for (unsigned step = 0; step < kMeshSteps; ++step) {
    optimizer.zero_grad();
    double sum = 0;
    for (int m = 0; m < count; ++m) {
      const auto [inputs, targets] = sequences(options, 100 * step + static_cast<unsigned>(m));
      const Tensor loss = share_of_loss((*model)(inputs), targets, count);
      sum += loss.item<float>();
      loss.backward();
    }
    if (step == 0) out.gradients = gradients_of(*model);
    out.losses.push_back(sum);
    out.norms.push_back(clip_grad_norm_(model->parameters(), kMeshClip).item<float>());
    optimizer.step();
  }
  out.state = model->state_dict();
  return out;
}

struct MeshSplit {
  MeshShape shape;
  int replicas = 1;
  int microbatches = 1;  // of a replica
  const char* schedule = "1f1b";
  bool split_sequence = false;
  [[nodiscard]] int world() const { return shape.ranks_per_model() * replicas; }
};

// Trains the same model on a mesh. Replica d takes microbatches d, d + replicas, ... of a step.
inline std::vector<MeshRun> on_mesh(const GPTOptions& options, const MeshSplit& split) {
  auto models = equal_gpts(split.world(), options);
  return run_ranks<MeshRun>(split.world(), [&](const Group& group) {
    const Mesh mesh = make_mesh(*group, split.shape);
    GptStage stage(std::move(models[static_cast<std::size_t>(group->rank())]), mesh,
                   split.split_sequence);
    DistributedDataParallel ddp(stage, mesh.data);
    Pipeline pipeline(mesh.pipeline);
    const auto schedule =
        comm::pipeline_schedule(split.schedule, mesh.stages(), split.microbatches);
    SGD optimizer(stage.parameters(), mesh_sgd());
    MeshRun out;
    for (unsigned step = 0; step < kMeshSteps; ++step) {
      optimizer.zero_grad();
      using NoSync = DistributedDataParallel::NoSync;
      std::unique_ptr<NoSync> local(new NoSync(ddp.no_sync()));
      const double loss = pipeline.run(
          schedule,
          {.forward =
               [&](int m, const Tensor& input) {
                 const int number = m * mesh.replicas() + mesh.replica();
                 const auto [tokens, targets] =
                     sequences(options, 100 * step + static_cast<unsigned>(number));
                 const Tensor y = stage(mesh.is_first_stage() ? tokens : input);
                 return mesh.is_last_stage() ? share_of_loss(y, targets, split.microbatches) : y;
               },
           .activation = {kMeshRows, kMeshTokens, options.dim},
           .before_last_backward =
               [&](const Tensor& output) {
                 local.reset();
                 (void)ddp.forward([&] { return output; });
               }});
      stage.sum_sequence_gradients();
      if (step == 0) out.gradients = gradients_of(stage);
      double mean = loss / mesh.replicas();
      mesh.data->all_reduce(std::span<double>(&mean, 1));
      out.losses.push_back(mean);
      out.norms.push_back(stage.clip_grad_norm(kMeshClip));
      out.stored.push_back(pipeline.most_stored());
      optimizer.step();
    }
    out.state = stage.whole_state();
    return out;
  });
}

inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return HUGE_VAL;
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(double{a[i]} - b[i]);
    if (!(d <= worst)) worst = std::isnan(d) ? HUGE_VAL : d;  // a NaN must not be lost
  }
  return worst;
}

// Compares losses, norms and the final state within a tolerance, which may be 0.
inline void check_equal_runs(const MeshRun& got, const MeshRun& want, double tolerance) {
  for (std::size_t step = 0; step < kMeshSteps; ++step) {
    INFO("step " << step);
    CHECK(std::abs(got.losses.at(step) - want.losses[step]) <= tolerance);
    CHECK(std::abs(got.norms.at(step) - want.norms[step]) <= 10 * tolerance);
  }
  REQUIRE(got.state.size() == want.state.size());
  for (const auto& [name, tensor] : want.state) {
    INFO(name);
    REQUIRE(got.state.count(name) == 1);
    CHECK(got.state.at(name).sizes() == tensor.sizes());
    CHECK(largest_difference(got.state.at(name).to_vector<float>(), tensor.to_vector<float>()) <=
          10 * tolerance);
  }
}

}  // namespace ringsmith::test
