// Compares tensor parallelism with one process: equal up to rounding, because products are summed
// in parts.
#include "runtime/parallel/beyond/tensor_parallel.hpp"

#include "labs/apps/compare/metered_group.hpp"
#include "tests/parallel/gpt_fixture.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

TEST_CASE("f sums gradients and g sums values, each only in its direction", "[tensor_parallel]") {
  for (const int world : {1, 2, 3, 4}) {
    const auto got = run_ranks<Values>(world, [](const Group& group) {
      const auto r = static_cast<float>(group->rank());
      const Tensor x = trained(from_vector<float>({1, 2, 3}));
      const Tensor f = sum_gradients(group, x);
      f.backward(full({3}, r + 1));
      const Tensor z = trained(full({3}, r + 1));
      const Tensor g = sum_parts(group, z);
      g.backward(from_vector<float>({4, 5, 6}));
      return Values{f.to_vector<float>(), x.grad().to_vector<float>(), g.to_vector<float>(),
                    z.grad().to_vector<float>()};
    });
    const auto total = static_cast<float>(world * (world + 1) / 2);
    for (const Values& of_rank : got)
      CHECK(of_rank == Values{{1, 2, 3}, {total, total, total}, {total, total, total}, {4, 5, 6}});
  }
}

TEST_CASE("sequence parallelism gathers and scatters tokens", "[tensor_parallel]") {
  // Two sequences of four tokens of width 1: 0 1 2 3 and 4 5 6 7.
  const auto got = run_ranks<Values>(2, [](const Group& group) {
    const auto r = static_cast<float>(group->rank());
    const Tensor whole = trained(arange(0, 8, 1, {DType::f32}).view({2, 4, 1}));
    const Tensor mine = take_sequence(group, whole);
    const Tensor gathered = gather_sequence(group, mine);
    gathered.backward(full({2, 4, 1}, r + 1));  // summed: 3 for each token
    const Tensor again = trained(arange(0, 8, 1, {DType::f32}).view({2, 4, 1}));
    const Tensor scattered = scatter_sequence(group, again);  // both ranks' values: doubled
    const Tensor all = whole_sequence(group, scattered);
    all.backward(arange(0, 8, 1, {DType::f32}).view({2, 4, 1}));
    return Values{mine.to_vector<float>(),         gathered.to_vector<float>(),
                  whole.grad().to_vector<float>(), scattered.to_vector<float>(),
                  all.to_vector<float>(),          again.grad().to_vector<float>()};
  });
  const std::vector<float> tokens{0, 1, 2, 3, 4, 5, 6, 7}, threes(8, 3),
      doubled{0, 2, 4, 6, 8, 10, 12, 14};
  CHECK(got[0] == Values{{0, 1, 4, 5}, tokens, threes, {0, 2, 8, 10}, doubled, tokens});
  CHECK(got[1] == Values{{2, 3, 6, 7}, tokens, threes, {4, 6, 12, 14}, doubled, tokens});
}

TEST_CASE("parts of tensors are disjoint, and make the whole again", "[tensor_parallel]") {
  const auto got = run_ranks<Values>(3, [](const Group& group) {
    Values out;
    for (const auto& [sizes, split] : {std::pair{Shape{9, 2}, TensorSplit::outputs},
                                       {Shape{9}, TensorSplit::outputs},
                                       {Shape{2, 9}, TensorSplit::inputs},
                                       {Shape{9, 2}, TensorSplit::qkv_outputs},
                                       {Shape{9}, TensorSplit::qkv_outputs},
                                       {Shape{2, 2}, TensorSplit::none}}) {
      const Tensor whole =
          arange(0, static_cast<double>(numel_of(sizes)), 1, {DType::f32}).view(sizes);
      const Tensor part = part_of(whole, split, group->rank(), 3);
      out.push_back(part.to_vector<float>());
      const Tensor again = whole_of(*group, part, split);
      if (again.sizes() != sizes || again.to_vector<float>() != whole.to_vector<float>())
        out.emplace_back();
    }
    return out;
  });
  CHECK(got[1] == Values{{6, 7, 8, 9, 10, 11},
                         {3, 4, 5},
                         {3, 4, 5, 12, 13, 14},
                         {2, 3, 8, 9, 14, 15},
                         {1, 4, 7},
                         {0, 1, 2, 3}});
}

TEST_CASE("a GPT on 2, 3 and 4 ranks trains as in one process", "[tensor_parallel]") {
  const GPTOptions options = small_gpt();
  const MeshRun want = on_one_process(options, 1);
  constexpr double kTolerance = 2e-6;
  for (const int parts : {1, 2, 3, 4})
    for (const bool split_sequence : {false, true}) {
      INFO(parts << " ranks" << (split_sequence ? ", by tokens, too" : ""));
      const auto got =
          on_mesh(options, {.shape = {.tensor = parts}, .split_sequence = split_sequence});
      check_equal_runs(got[0], want, parts == 1 ? 0 : kTolerance);
      for (const MeshRun& of_rank : got) {
        CHECK(of_rank.losses == got[0].losses);  // bit for bit the same on all ranks
        CHECK(of_rank.norms == got[0].norms);
        for (const auto& [name, gradient] : of_rank.gradients) {
          INFO(name);
          const std::string inner =
              name.starts_with("blocks.") ? name.substr(std::string("blocks.0.").size()) : name;
          if (split_of(inner) == TensorSplit::none)
            CHECK(gradient == got[0].gradients.at(name));  // needs no communication
          else
            CHECK(gradient[0].size() * static_cast<std::size_t>(parts) ==
                  want.gradients.at(name)[0].size());
        }
      }
    }
}

TEST_CASE("a block sends four all-reduces of its activations, by tokens or not",
          "[tensor_parallel]") {
  const GPTOptions options = small_gpt();
  for (const int parts : {2, 3, 4})
    for (const bool split_sequence : {false, true}) {
      INFO(parts << " ranks" << (split_sequence ? ", by tokens, too" : ""));
      auto models = equal_gpts(parts, options);
      const auto sent = run_ranks<std::size_t>(parts, [&](const Group& ranks) {
        ranks->set_algorithm(comm::Algorithm::ring);
        const auto group = std::make_shared<apps::MeteredGroup>(ranks);
        const auto& model = models[static_cast<std::size_t>(ranks->rank())];
        TensorParallelBlock block(*model->blocks[0], options, group, split_sequence);
        const std::int64_t tokens = split_sequence ? kMeshTokens / parts : kMeshTokens;
        const Tensor x = trained(ones({kMeshRows, tokens, options.dim}));
        const Tensor y = block(x);
        y.backward(ones_like(y));
        return group->sent().value;
      });
      const auto bytes = static_cast<std::size_t>(kMeshRows * kMeshTokens * options.dim) *
                         sizeof(float);  // 2,304: 2, 3 and 4 divide it
      for (const std::size_t of_rank : sent)
        CHECK(of_rank == 4 * 2 * bytes * static_cast<std::size_t>(parts - 1) /
                             static_cast<std::size_t>(parts));
    }
}

TEST_CASE("tensor parallelism recomputes blocks, with the same bits", "[tensor_parallel]") {
  GPTOptions options = small_gpt();
  const auto plain = on_mesh(options, {.shape = {.tensor = 2}});
  options.activation_checkpointing = true;
  check_equal_runs(on_mesh(options, {.shape = {.tensor = 2}})[0], plain[0], 0);
}

TEST_CASE("misuse of tensor parallelism is one line", "[tensor_parallel]") {
  GPTOptions options = small_gpt();
  options.dropout = 0.5;
  auto models = equal_gpts(5, options);
  const auto said = run_ranks<std::vector<std::string>>(5, [&](const Group& group) {
    const Block& block = *models[static_cast<std::size_t>(group->rank())]->blocks[0];
    GPTOptions fitting = options;
    fitting.heads = 10;
    return std::vector<std::string>{
        complaint_of([&] { const TensorParallelBlock part(block, options, group); }),
        complaint_of([&] { const TensorParallelBlock part(block, fitting, group, true); }),
        complaint_of([&] {
          (void)take_sequence(group, zeros({1, 12, 4}));
        }),
        complaint_of([&] {
          (void)part_of(zeros({6, 2}), TensorSplit::outputs, 0, 5);
        })};
  });
  for (const auto& each : said) {
    CHECK(each[0] ==
          "tensor parallelism: 12 heads cannot be split among 5 ranks; take a number of ranks that "
          "divides them");
    CHECK(each[1] ==
          "sequence parallelism: the ranks would drop the same elements of different tokens; leave "
          "out dropout");
    CHECK(
        each[2] ==
        "sequence parallelism: [1, 12, 4] must be (batch, tokens, width) with tokens that 5 ranks "
        "divide");
    CHECK(each[3] == "tensor parallelism: [6, 2] cannot be split evenly among 5 ranks");
  }
}
