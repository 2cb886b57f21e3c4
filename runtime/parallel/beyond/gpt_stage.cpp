#include "runtime/parallel/beyond/gpt_stage.hpp"

#include <cmath>
#include <cstddef>
#include <functional>
#include <iterator>
#include <span>
#include <string>

#include "kernels/optim.hpp"
#include "runtime/autograd/checkpoint.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/base/error.hpp"
#include "runtime/parallel/beyond/state_transfer.hpp"
#include "runtime/parallel/beyond/tensor_parallel.hpp"
#include "runtime/tensor/raw.hpp"

namespace ringsmith {

namespace {

constexpr const char* kBlocks = "blocks.";

// "blocks.3.up.weight" -> "up.weight"; other names are unchanged
std::string name_in_block(const std::string& name) {
  const std::string prefix = kBlocks;
  return name.starts_with(prefix) ? name.substr(name.find('.', prefix.size()) + 1) : name;
}

}  // namespace

GptStage::GptStage(std::unique_ptr<GPT> whole, const Mesh& mesh, bool split_sequence)
    : mesh_(mesh),
      options_(whole->options()),
      split_sequence_(split_sequence && mesh.parts() > 1),
      norm_(options_.dim),
      drop_(options_.dropout) {
  const int stages = mesh.stages(), layers = options_.layers;
  require(layers >= stages, "pipeline: " + std::to_string(stages) + " stages need at least " +
                                std::to_string(stages) + " layers, the model has " +
                                std::to_string(layers) + "; use fewer stages or more layers");
  require(!options_.tied || stages == 1,
          "pipeline: a head that is tied to the token table would be on another stage than the "
          "table; leave the head untied");
  require(!split_sequence_ || options_.context % mesh.parts() == 0,
          "sequence parallelism: a context of " + std::to_string(options_.context) +
              " tokens cannot be split among " + std::to_string(mesh.parts()) +
              " ranks; take a multiple");
  if (mesh.is_first_stage()) {
    register_parameter("tok.weight", tok_, whole->tok.weight);
    register_parameter("pos.weight", pos_, whole->pos.weight);
  }
  for (int i = mesh.stage() * layers / stages; i < (mesh.stage() + 1) * layers / stages; ++i) {
    std::unique_ptr<Block>& block = whole->blocks[static_cast<std::size_t>(i)];
    if (mesh.parts() == 1)
      blocks_.push_back(std::move(block));
    else
      blocks_.push_back(
          std::make_unique<TensorParallelBlock>(*block, options_, mesh.tensor, split_sequence_));
    register_module(kBlocks + std::to_string(i), *blocks_.back());
  }
  if (mesh.is_last_stage()) {
    norm_.weight = whole->norm.weight;
    norm_.bias = whole->norm.bias;
    register_module("norm", norm_);
    register_parameter("head.weight", head_, whole->head->weight);
  }
  register_module("drop", drop_);
}

Tensor GptStage::forward(const Tensor& given) {
  Tensor x = given;
  if (mesh_.is_first_stage()) {
    require(x.dim() == 2 && x.size(1) <= options_.context,
            "GptStage: tokens must be (batch, time) with at most " +
                std::to_string(options_.context) + " tokens, got " + to_string(x.sizes()));
    x = drop_(embedding(tok_, x) + slice(pos_, 0, 0, x.size(1)));
  }
  if (split_sequence_) x = take_sequence(mesh_.tensor, x);
  for (const auto& block : blocks_) {
    const auto run = std::ref<Module>(*block);
    if (!options_.activation_checkpointing)
      x = run(x);
    else
      x = options_.dropout > 0 ? checkpoint(run, x) : checkpoint<Draws::no>(run, x);
  }
  if (split_sequence_) x = whole_sequence(mesh_.tensor, x);
  if (!mesh_.is_last_stage()) return x;
  const Tensor logits = linear(norm_.lowered(x), head_);
  return logits.size(2) == options_.vocabulary ? logits : slice(logits, 2, 0, options_.vocabulary);
}

double GptStage::clip_grad_norm(double max_norm) const {
  require(max_norm >= 0,
          "clip_grad_norm: max_norm must be 0 or more, got " + std::to_string(max_norm));
  const NamedTensors parameters = named_parameters();
  std::vector<double> squares(parameters.size(), 0);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, parameter] = parameters[i];
    const Tensor grad = parameter.grad();
    // All parts have the same gradient for a parameter that is not split, so it is counted once.
    if (!grad.defined() ||
        (split_of(name_in_block(name)) == TensorSplit::none && mesh_.part() != 0))
      continue;
    const Tensor sum = Tensor::empty({1}, {DType::f64, grad.device()});
    raw::visit_arithmetic(grad.dtype(), "clip_grad_norm", [&]<class T>(TypeTag<T>) {
      kernels::sum_of_squares(grad.device(), grad.kernel_span<T>(), sum.kernel_span<double>());
    });
    squares[i] = sum.item<double>();
  }
  mesh_.tensor->all_reduce(std::span<double>(squares));
  double total = 0;
  for (const double sum : squares) {  // as in clip_factor: a norm of norms, each of them an f32
    const auto norm = static_cast<float>(std::sqrt(sum));
    total += double{norm} * norm;
  }
  mesh_.pipeline->all_reduce(std::span<double>(&total, 1));

  const Device there = device();
  const Tensor sum = full({1}, total, {DType::f64}).to(there);
  const Tensor norm = Tensor::empty({}, {DType::f32, there}), factor = empty_like(norm);
  kernels::clip_factor(there, sum.kernel_span<double>(), max_norm, norm.kernel_span<float>(),
                       factor.kernel_span<float>());
  for (const auto& [name, parameter] : parameters) {
    const Tensor grad = parameter.grad();
    if (!grad.defined()) continue;
    raw::visit_arithmetic(grad.dtype(), "clip_grad_norm", [&]<class T>(TypeTag<T>) {
      kernels::scale(there, grad.kernel_span<T>(), factor.kernel_span<float>());
    });
    grad.bump_version();
  }
  return norm.item<float>();
}

StateDict GptStage::whole_state() const {
  StateDict all;
  for (const auto& [name, tensor] : state_dict())
    all[name] = whole_of(*mesh_.tensor, tensor, split_of(name_in_block(name))).cpu();
  if (mesh_.part() != 0) return {};
  const auto as_bytes_of = [](std::vector<std::byte>& bytes) {
    return std::span(reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size());
  };
  comm::ProcessGroup& stages = *mesh_.pipeline;
  if (stages.rank() > 0) {
    Snapshot mine;
    mine.tensors["model"] = all;
    std::vector<std::byte> bytes = pack(mine);
    std::int64_t size = std::ssize(bytes);
    stages.send(std::span<const std::int64_t>(&size, 1), 0);
    stages.send(as_bytes_of(bytes), 0);
    return {};
  }
  for (int stage = 1; stage < stages.size(); ++stage) {
    std::int64_t size = 0;
    stages.recv(std::span<std::int64_t>(&size, 1), stage);
    std::vector<std::byte> bytes(static_cast<std::size_t>(size));
    stages.recv(as_bytes_of(bytes), stage);
    all.merge(unpack(bytes).tensors.at("model"));
  }
  return all;
}

void GptStage::sum_sequence_gradients() {
  for (const auto& block : blocks_)
    if (auto* split = dynamic_cast<TensorParallelBlock*>(block.get()))
      split->sum_sequence_gradients();
}

}  // namespace ringsmith
