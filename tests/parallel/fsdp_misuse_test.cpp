// Every wrong use of FSDP must cause an error of one line that names the remedy, on every rank.
#include <algorithm>

#include "runtime/autograd/engine.hpp"
#include "runtime/nn/layers.hpp"
#include "runtime/parallel/beyond/fsdp.hpp"
#include "tests/parallel/ranks.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

namespace {

struct Model : MLP {
  Model() : MLP({4, 5, 5, 3}) {}
  [[nodiscard]] std::vector<Module*> units() { return {&(*this)[0], &(*this)[2]}; }
};

using Body = std::function<void(Model&, const Group&)>;

// Returns the error, which must be the same on both ranks.
std::string refused(const Body& body) {
  std::vector<std::unique_ptr<Model>> all;
  for (int r = 0; r < 2; ++r) all.push_back(std::make_unique<Model>());
  const auto errors = run_ranks<std::string>(2, [&](const Group& group) {
    return complaint_of([&] { body(*all[static_cast<std::size_t>(group->rank())], group); });
  });
  CHECK(errors[0] == errors[1]);
  CHECK(std::ranges::count(errors[0], '\n') == 0);
  return errors[0];
}

Tensor loss_of(FullyShardedDataParallel& fsdp) { return sum(fsdp.forward(ones({2, 4}))); }

}  // namespace

TEST_CASE("FSDP refuses units that do not partition the module", "[fsdp]") {
  const auto construct = [](const std::function<std::vector<Module*>(Model&, int rank)>& units) {
    return refused([&](Model& model, const Group& group) {
      FullyShardedDataParallel(model, units(model, group->rank()), group);
    });
  };
  CHECK(construct([](Model& m, int) { return m.units(); }).empty());
  CHECK_THAT(construct([](Model& m, int) {
               return std::vector<Module*>{&m[0], &m[2], &m[0]};
             }),
             ContainsSubstring("parameter '0.weight' is in units 1 and 3; put both modules into "
                               "one unit, or into none"));
  CHECK_THAT(construct([](Model& m, int) {
               return std::vector<Module*>{&m[0], &m};
             }),
             ContainsSubstring("unit 2 is the module itself; leave it out"));
  CHECK_THAT(construct([](Model&, int) { return std::vector<Module*>{nullptr}; }),
             ContainsSubstring("unit 1 is null; leave it out"));
  CHECK_THAT(construct([](Model& m, int) {
               return std::vector<Module*>{&m[0], &m[1]};
             }),
             ContainsSubstring("unit 2 has no parameters; leave it out"));
  Linear other(3, 3);
  CHECK_THAT(construct([&](Model& m, int) {
               return std::vector<Module*>{&m[0], &other};
             }),
             ContainsSubstring("unit 2 is not a part of the module"));
  CHECK_THAT(construct([](Model& m, int rank) {
               return rank == 0 ? m.units() : std::vector<Module*>{&m[0], &m[4]};
             }),
             ContainsSubstring("unit 2's parameter '2.weight' f32[5, 5] on rank 0"));
  CHECK_THAT(
      refused([](Model& model, const Group& group) {
        FullyShardedDataParallel(model, model.units(), group,
                                 {.reshard_after_forward = group->rank() == 0});
      }),
      ContainsSubstring("options reshard_after_forward=true dtype=f32 on rank 0, but options "
                        "reshard_after_forward=false dtype=f32 on rank 1"));
  CHECK_THAT(refused([](Model& model, const Group& group) {
               model.parameters()[0].requires_grad_(false);
               FullyShardedDataParallel(model, model.units(), group);
             }),
             ContainsSubstring("parameter '0.weight' is frozen; unfreeze it"));
  CHECK_THAT(refused([](Model& model, const Group& group) {
               if (group->rank() == 1) model.parameters()[0].requires_grad_(false);
               FullyShardedDataParallel(model, model.units(), group);
             }),
             ContainsSubstring("parameter '0.weight' is frozen; unfreeze it on rank 1"));
  CHECK_THAT(refused([](Model& model, const Group& group) {
               const FullyShardedDataParallel first(model, model.units(), group);
               FullyShardedDataParallel(model, model.units(), group);
             }),
             ContainsSubstring("FullyShardedDataParallel keeps a parameter only while its unit"));
}

TEST_CASE("forward and backward of FSDP must alternate", "[fsdp]") {
  const auto run = [](const std::function<void(FullyShardedDataParallel&, Model&)>& body) {
    return refused([&](Model& model, const Group& group) {
      FullyShardedDataParallel fsdp(model, model.units(), group);
      body(fsdp, model);
    });
  };
  CHECK(run([](auto& fsdp, Model&) {
          for (int k = 0; k < 3; ++k) loss_of(fsdp).backward();
        }).empty());
  CHECK_THAT(
      run([](auto& fsdp, Model&) { const Tensor first = loss_of(fsdp), second = loss_of(fsdp); }),
      ContainsSubstring("forward() called again before the backward() of the last one: let "
                        "them alternate, or evaluate under NoGradGuard"));
  CHECK_THAT(run([](auto& fsdp, Model&) {
               const Tensor loss = loss_of(fsdp);
               backward({loss}, {}, true);
               loss.backward();
             }),
             ContainsSubstring("without a forward(): call forward() before each backward(), once"));
  CHECK_THAT(run([](auto& fsdp, Model& model) {
               (void)loss_of(fsdp);
               (void)sum(model[2](ones({1, 5})));
             }),
             ContainsSubstring("a unit of FullyShardedDataParallel was called outside of its "
                               "forward(): call it from there, or under NoGradGuard"));
  CHECK_THAT(run([](auto& fsdp, Model&) {
               const auto whole = fsdp.whole();
               (void)loss_of(fsdp);
             }),
             ContainsSubstring("forward() inside whole() must be under NoGradGuard"));
  CHECK_THAT(run([](auto& fsdp, Model& model) {
               const auto whole = fsdp.whole();
               sum(model.parameters()[0]).backward();
             }),
             ContainsSubstring("'0.weight' or another of its unit got a gradient that "
                               "FullyShardedDataParallel would not reduce"));
  // An error in forward leaves the object usable; the parameters are freed again.
  CHECK(run([](auto& fsdp, Model&) {
          const Bytes before = fsdp.parameter_bytes();
          const std::string fault = complaint_of([&] { (void)fsdp.forward(ones({2, 9})); });
          require(fault.find("linear: x [2, 9]") == 0, "another error: " + fault);
          require(fsdp.parameter_bytes() == before, "a unit was not freed");
          loss_of(fsdp).backward();
        }).empty());
}

TEST_CASE("a parameter that is freed cannot be used", "[fsdp]") {
  constexpr const char* kFreed =
      "the tensor's memory is released: FullyShardedDataParallel keeps a "
      "parameter only while its unit runs forward or backward; call "
      "units as unit(x), from forward(), and read parameters inside "
      "whole()";
  for (const Body& touch :
       std::vector<Body>{[](Model&m, const Group&) { (void)m.parameters()[0].to_vector<float>(); },
                         [](Model&m, const Group&) { (void)m.parameters()[1].clone(); },
                         [](Model&m, const Group&) { m.parameters()[2].zero_(); },
                         [](Model&m, const Group&) {
                           (void)m[2].forward(ones({1, 5}));
                         },
                         [](Model&m, const Group&) {
                           (void)m[4](ones({1, 5}));
                         },
                         [](Model&m, const Group&) { m.load_state_dict(m.state_dict()); },
                         [](Model&m, const Group&) { (void)m.parameters()[0].str(); },
                         // Makes the optimizer from the module's parameters instead of the shards.
                         [](Model&m, const Group&) {
                           SGD optimizer(m.parameters(), {});
                           m.parameters()[0].set_grad(ones({5, 4}));
                           optimizer.step();
                         }})
    CHECK(refused([&](Model& model, const Group& group) {
            const FullyShardedDataParallel fsdp(model, model.units(), group);
            touch(model, group);
          }) == kFreed);
}

TEST_CASE("a graph from before the optimizer's step is stale", "[fsdp]") {
  CHECK_THAT(refused([](Model& model, const Group& group) {
               FullyShardedDataParallel fsdp(model, model.units(), group);
               SGD optimizer(fsdp.parameters(), {.lr = 0.1});
               loss_of(fsdp).backward();
               const Tensor loss = loss_of(fsdp);
               optimizer.step();
               loss.backward();
             }),
             ContainsSubstring("was modified in place after forward"));
}

TEST_CASE("state that does not fit FSDP is refused by name", "[fsdp]") {
  const auto load = [](const std::function<void(StateDict&, StateDict&, StateDict&)>& spoil) {
    return refused([&](Model& model, const Group& group) {
      FullyShardedDataParallel fsdp(model, model.units(), group);
      Adam optimizer(fsdp.parameters(), {});
      loss_of(fsdp).backward();
      optimizer.step();
      StateDict whole = fsdp.state_dict(), state = fsdp.state_dict(optimizer);
      StateDict shards = fsdp.shards(optimizer);
      spoil(whole, state, shards);
      fsdp.load_state_dict(whole);
      fsdp.load_state_dict(optimizer, state);
      fsdp.load_shards(optimizer, 2, [&](int) { return shards; });
    });
  };
  using S = StateDict&;
  CHECK(load([](S, S, S) {}).empty());
  CHECK_THAT(load([](S model, S, S) { model.erase("0.bias"); }),
             ContainsSubstring("'0.bias' is missing"));
  CHECK_THAT(load([](S model, S, S) { model["0.bias"] = zeros({9}); }),
             ContainsSubstring("'0.bias' is [9], the model has [5]"));
  CHECK_THAT(load([](S, S state, S) { state["state.9.exp_avg"] = zeros({3}); }),
             ContainsSubstring("'state.9.exp_avg' belongs to no parameter"));
  CHECK_THAT(load([](S, S state, S) { state["state.0.exp_avg"] = zeros({3}); }),
             ContainsSubstring("'state.0.exp_avg' is [3], its parameter is [5, 4]"));
  CHECK_THAT(
      load([](S, S state, S) { state["state.1.step"] = from_vector<std::int64_t>({7}, {}); }),
      ContainsSubstring("'state.1.step' differs from the steps of the rest of its unit"));
  CHECK_THAT(load([](S, S state, S) { state["param_groups.0.params"] = arange(4); }),
             ContainsSubstring("it is not of 6 parameters"));
  CHECK_THAT(load([](S, S, S shards) { shards["state.1.values"] = zeros({3}); }),
             ContainsSubstring("'state.1.values' of rank 0 has 3 elements, not 13: the shards are "
                               "of other units or another number of ranks"));
  CHECK_THAT(load([](S, S, S shards) { shards.erase("state.2.values"); }),
             ContainsSubstring("rank 0 has shards of 2 units, this model has 3"));
}
