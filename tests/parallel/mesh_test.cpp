// Data, tensor and pipeline parallelism together, compared with one process.
#include "runtime/parallel/beyond/mesh.hpp"

#include <span>
#include <utility>

#include "tests/parallel/gpt_fixture.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

TEST_CASE("a mesh has one group along each axis", "[mesh]") {
  const auto got = run_ranks<std::vector<int>>(8, [](const Group& group) {
    const Mesh mesh = make_mesh(*group, {.tensor = 2, .pipeline = 2});
    std::vector<int> out{mesh.stage(), mesh.replica(), mesh.part()};
    for (const auto& axis : {mesh.tensor, mesh.data, mesh.pipeline}) {
      std::vector<int> members(static_cast<std::size_t>(axis->size()));
      const int me = group->rank();
      axis->all_gather(std::span<const int>(&me, 1), std::span<int>(members));
      out.insert(out.end(), members.begin(), members.end());
    }
    return out;
  });
  // stage, replica and part; then the members along each axis (mesh.hpp)
  CHECK(got[0] == std::vector<int>{0, 0, 0, 0, 1, 0, 2, 0, 4});
  CHECK(got[3] == std::vector<int>{0, 1, 1, 2, 3, 1, 3, 3, 7});
  CHECK(got[6] == std::vector<int>{1, 1, 0, 6, 7, 4, 6, 2, 6});
}

TEST_CASE("meshes of 2 x 2 and 2 x 2 x 2 train as one process", "[mesh]") {
  const GPTOptions options = small_gpt();
  constexpr int kMicrobatches = 4;  // of all replicas
  const MeshRun want = on_one_process(options, kMicrobatches);
  for (const MeshSplit& split :
       {MeshSplit{.shape = {.tensor = 2, .pipeline = 2}, .microbatches = kMicrobatches},
        MeshSplit{.shape = {.tensor = 2, .pipeline = 2},
        .microbatches = kMicrobatches,
        .schedule = "gpipe",
        .split_sequence = true},
        MeshSplit{.shape = {.pipeline = 2}, .replicas = 2, .microbatches = kMicrobatches / 2},
        MeshSplit{.shape = {.pipeline = 2},
        .replicas = 2,
        .microbatches = kMicrobatches / 2,
        .schedule = "gpipe"},
        MeshSplit{.shape = {.tensor = 2}, .replicas = 2, .microbatches = kMicrobatches / 2},
        MeshSplit{.shape = {.tensor = 2, .pipeline = 2},
        .replicas = 2,
        .microbatches = kMicrobatches / 2}}) {
    INFO(split.replicas << " x " << split.shape.tensor << " x " << split.shape.pipeline << ", "
                        << split.schedule);
    const auto got = on_mesh(options, split);
    check_equal_runs(got[0], want, 2e-6);
    for (const MeshRun& of_rank : got) {
      CHECK(of_rank.losses == got[0].losses);
      CHECK(of_rank.norms == got[0].norms);
    }
  }
}

TEST_CASE("misuse of a mesh is one line on every rank", "[mesh]") {
  GPTOptions tied = small_gpt();
  tied.tied = true;
  GPTOptions shallow = small_gpt();
  shallow.layers = 1;
  auto ties = equal_gpts(2, tied), shallows = equal_gpts(2, shallow);
  const auto said = run_ranks<std::vector<std::string>>(2, [&](const Group& group) {
    const auto r = static_cast<std::size_t>(group->rank());
    const Mesh mesh = make_mesh(*group, {.pipeline = 2});
    return std::vector<std::string>{
        complaint_of([&] { (void)make_mesh(*group, {.tensor = 3, .pipeline = 1}); }),
        complaint_of([&] { (void)make_mesh(*group, {.tensor = 0}); }),
        complaint_of([&] { const GptStage stage(std::move(ties[r]), mesh); }),
        complaint_of([&] { const GptStage stage(std::move(shallows[r]), mesh); })};
  });
  for (const auto& each : said) {
    CHECK(
        each[0] ==
        "mesh: 2 ranks cannot be divided into models of 3 parts x 1 stages; start a multiple of 3 "
        "ranks");
    CHECK(each[1] == "mesh: 0 parts and 1 stages: both must be at least 1");
    CHECK(each[2] ==
          "pipeline: a head that is tied to the token table would be on another stage than the "
          "table; leave the head untied");
    CHECK(each[3] ==
          "pipeline: 2 stages need at least 2 layers, the model has 1; use fewer stages or more "
          "layers");
  }
}
