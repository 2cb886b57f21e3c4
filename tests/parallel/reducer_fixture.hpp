// A reducer on one rank with simulated peers (tests/support/fake_group.hpp).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/autograd/engine.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/parallel/broadcast_coalesced.hpp"
#include "runtime/parallel/reducer.hpp"
#include "runtime/tensor/tensor.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/fake_group.hpp"

namespace ringsmith::test {

// Parameters p0, p1, ... have 4, 5, ... floats. In use(ids), parameter p gets the gradient 10 (p +
// 1). Gradients become ready in the order of ids, because they are inputs of one node.
struct ReducerFixture {
  explicit ReducerFixture(int parameters = 3, ReducerOptions options = small_buckets(),
                          int world = 2, int rank = 0)
      : group(std::make_shared<FakeGroup>(world, rank)) {
    std::vector<std::string> names;
    for (int p = 0; p < parameters; ++p) {
      params.push_back(full({4 + p}, 1.0).requires_grad_());
      names.push_back("p" + std::to_string(p));
    }
    reducer.emplace(names, params, group, options);
    for (int p = 0; p < parameters; ++p)
      register_post_accumulate_grad_hook(params[static_cast<std::size_t>(p)], [this, p](auto&) {
        group->log.push_back("grad " + std::to_string(p));
      });
    group->log.clear();
  }

  static ReducerOptions small_buckets() { return {.caps = {Bytes(1), Bytes(1)}}; }
  static ReducerOptions find_unused() {
    return {.caps = {Bytes(1), Bytes(1)}, .find_unused_parameters = true};
  }

  [[nodiscard]] Tensor use(const std::vector<int>& ids) const {
    std::vector<Tensor> inputs, grads;
    for (const int id : ids) {
      inputs.push_back(params[static_cast<std::size_t>(id)]);
      grads.push_back(full(inputs.back().sizes(), 10.0 * (id + 1)));
    }
    return function("Use", inputs, grads);
  }
  static Tensor function(const char* name, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& grads) {
    Tensor loss = scalar(0.0);
    record(name, inputs, loss, {}, [grads](const Saved&, const Tensor&) { return grads; });
    return loss;
  }
  static Tensor both(const Tensor& a, const Tensor& b) {
    return function("Both", {a, b}, {scalar(1.0), scalar(1.0)});
  }
  void step(const std::vector<int>& ids) {
    reducer->begin_forward();
    const Tensor loss = use(ids);
    reducer->end_forward({loss});
    loss.backward();
  }
  void zero_grad() const {
    for (const Tensor& p : params) p.set_grad({});
  }
  [[nodiscard]] float grad(int p) const {
    const std::vector<float> values = params[static_cast<std::size_t>(p)].grad().to_vector<float>();
    for (const float v : values) CHECK(v == values[0]);
    return values[0];
  }
  // Peers send the same bits as this rank, except that rank r does not use the parameter.
  void peer_lacks(int r, int parameter) const {
    group->on_all_gather = [r, parameter](comm::Buffer out) {
      auto* words = reinterpret_cast<std::uint64_t*>(out.data());
      words[2 * r + 1] &= ~(std::uint64_t{1} << parameter);
    };
  }

  std::shared_ptr<FakeGroup> group;
  std::vector<Tensor> params;
  std::optional<Reducer> reducer;
};

}  // namespace ringsmith::test
