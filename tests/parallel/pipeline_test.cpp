// Compares a pipeline with one process that accumulates the gradients of the same microbatches: the
// bits are equal.
#include "runtime/parallel/beyond/pipeline.hpp"

#include <algorithm>

#include "runtime/analysis/pipeline.hpp"
#include "tests/parallel/gpt_fixture.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

TEST_CASE("a pipeline has the bits of one process that accumulates", "[pipeline]") {
  const GPTOptions options = small_gpt();
  for (const int m : {1, 2, 4, 7}) {
    const MeshRun want = on_one_process(options, m);
    for (const int p : {1, 2, 3, 4})
      for (const char* name : {"gpipe", "1f1b"}) {
        INFO(name << ", " << p << " stages, " << m << " microbatches");
        const auto got =
            on_mesh(options, {.shape = {.pipeline = p}, .microbatches = m, .schedule = name});
        check_equal_runs(got[0], want, 0);
        const auto schedule = comm::pipeline_schedule(name, p, m);
        REQUIRE(comm::check(schedule).empty());
        std::size_t parameters = 0;
        for (std::size_t stage = 0; stage < got.size(); ++stage) {
          CHECK(got[stage].losses == want.losses);  // on every stage
          CHECK(got[stage].stored ==
                std::vector<int>(kMeshSteps, comm::most_stored(schedule)[stage]));
          for (const auto& [parameter, gradient] : got[stage].gradients) {
            INFO(parameter);
            CHECK(gradient == want.gradients.at(parameter));
          }
          parameters += got[stage].gradients.size();
        }
        CHECK(parameters == want.gradients.size());  // each on one stage
      }
  }
}

TEST_CASE("a pipeline recomputes blocks, with the same bits", "[pipeline]") {
  GPTOptions options = small_gpt();
  const MeshRun want = on_one_process(options, 3);
  options.activation_checkpointing = true;
  check_equal_runs(on_mesh(options, {.shape = {.pipeline = 2}, .microbatches = 3})[0], want, 0);
}

TEST_CASE("a pipeline evaluates the whole model on every stage, without a graph", "[pipeline]") {
  const GPTOptions options = small_gpt();
  const Tensor tokens = sequences(options, 1).inputs;
  const auto want = (*equal_gpts(1, options).front())(tokens).to_vector<float>();
  auto models = equal_gpts(3, options);
  const auto got = run_ranks<Values>(3, [&](const Group& group) {
    const Mesh mesh = make_mesh(*group, {.pipeline = 3});
    GptStage stage(std::move(models[static_cast<std::size_t>(group->rank())]), mesh);
    Pipeline pipeline(mesh.pipeline);
    Values out;
    for (int i = 0; i < 2; ++i) {
      const Tensor logits = pipeline.evaluate(
          {.forward = [&](int,
                          const Tensor& x) { return stage(mesh.is_first_stage() ? tokens : x); },
           .activation = {kMeshRows, kMeshTokens, options.dim}},
          {kMeshRows, kMeshTokens, options.vocabulary});
      out.push_back(logits.to_vector<float>());
      if (logits.requires_grad()) out.emplace_back();
    }
    return out;
  });
  for (const Values& of_rank : got) CHECK(of_rank == Values{want, want});
}

TEST_CASE("any proved schedule runs: backwards of the last microbatch first", "[pipeline]") {
  // The original order of GPipe. Sums of whole numbers are exact in any order.
  comm::PipelineSchedule schedule = comm::gpipe(3, 4);
  for (auto& actions : schedule.actions) std::reverse(actions.begin() + 4, actions.end());
  REQUIRE(comm::check(schedule).empty());
  const auto got = run_ranks<Values>(3, [&](const Group& group) {
    Pipeline pipeline(group);
    const Tensor w = trained(full({2, 2}, 1.0 + group->rank()));
    const double loss = pipeline.run(
        schedule, {.forward =
                       [&](int m, const Tensor& x) {
                         const Tensor y = matmul(group->rank() == 0 ? full({1, 2}, m) : x, w);
                         return group->rank() == 2 ? sum(y) : y;
                       },
                   .activation = {1, 2}});
    return Values{{static_cast<float>(loss)}, w.grad().to_vector<float>()};
  });
  // x = m (1 1); y = 2 m (1 1), 8 m (1 1), 48 m (1 1): losses 96 m for m = 0 to 3
  CHECK(got[0] == Values{{576}, {144, 144, 144, 144}});
  CHECK(got[1] == Values{{576}, {72, 72, 72, 72}});
  CHECK(got[2] == Values{{576}, {48, 48, 48, 48}});
}

TEST_CASE("activations larger than a connection's memory do not block 1f1b", "[pipeline]") {
  // An activation has 4 MiB. Its numbers are whole, so that all sums are exact.
  constexpr std::int64_t kCount = 1 << 20;
  for (const int p : {2, 3}) {
    const auto got = run_ranks<Values>(p, [&](const Group& group) {
      Pipeline pipeline(group);
      const Tensor w = trained(ones({1}));
      const double loss = pipeline.run(
          comm::one_forward_one_backward(p, 5),
          {.forward =
               [&](int m, const Tensor& x) {
                 const Tensor y = mul(group->rank() == 0 ? full({kCount}, m % 2) : x, w);
                 return group->rank() == p - 1 ? sum(y) : y;
               },
           .activation = {kCount}});
      return Values{{static_cast<float>(loss)}, w.grad().to_vector<float>()};
    });
    for (const Values& of_rank : got) CHECK(of_rank == Values{{2 * kCount}, {2 * kCount}});
  }
}

TEST_CASE("misuse of a pipeline is one line", "[pipeline]") {
  const auto said = run_ranks<std::vector<std::string>>(2, [&](const Group& group) {
    Pipeline pipeline(group);
    const auto forward = [](int, const Tensor&) { return trained(ones({3, 1})); };
    return std::vector<std::string>{
        complaint_of([&] {
          (void)pipeline.run(comm::gpipe(3, 1), {.forward = forward, .activation = {1, 3}});
        }),
        group->rank() > 0 ? "" : complaint_of([&] {
          (void)pipeline.run(comm::gpipe(2, 1), {.forward = forward, .activation = {1, 3}});
        })};
  });
  for (const auto& each : said)
    CHECK(each[0] == "pipeline: the schedule has 3 stages, the group has 2 ranks");
  CHECK(said[0][1] ==
        "pipeline: stage 0 returned activations of f32[3, 1], announced as f32[1, 3]");
}
