// The layers with and without parameters that models are made of. Shapes as in
// runtime/autograd/functions.hpp, initial values as PyTorch's (init.hpp).
#pragma once

#include <memory>
#include <vector>

#include "runtime/autograd/functions.hpp"
#include "runtime/nn/module.hpp"

namespace ringsmith {

// y = x weight^T + bias: (..., in) -> (..., out); weight (out, in).
class Linear : public Module {
 public:
  Linear(std::int64_t in, std::int64_t out, bool with_bias = true);
  Tensor forward(const Tensor& x) override { return linear(x, weight, bias); }
  Tensor weight;
  Tensor bias;  // undefined without bias
};

// Rows of a table: i64 (...) -> (..., dim); weight (count, dim).
class Embedding : public Module {
 public:
  Embedding(std::int64_t count, std::int64_t dim);
  Tensor forward(const Tensor& index) override { return embedding(weight, index); }
  Tensor weight;
};

// Over the last dimension.
class LayerNorm : public Module {
 public:
  explicit LayerNorm(std::int64_t dim, double eps = 1e-5);
  Tensor forward(const Tensor& x) override { return layer_norm(x, weight, bias, eps_); }
  Tensor weight, bias;

 private:
  double eps_;
};

class ReLU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return relu(x); }
};

class GELU : public Module {
 public:
  explicit GELU(Gelu approximate = Gelu::erf) : approximate_(approximate) {}
  Tensor forward(const Tensor& x) override { return gelu(x, approximate_); }

 private:
  Gelu approximate_;
};

// In training each element is 0 with probability p, else divided by 1 - p. Masks come from the
// default generator: seed it differently on each rank, or all ranks drop the same elements.
class Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5);  // UsageError unless p is in [0, 1)
  Tensor forward(const Tensor& x) override {
    return training() && p_ > 0 ? dropout(x, p_, true) : x;
  }

 private:
  double p_;
};

// (n, ...) -> (n, product of the rest)
class Flatten : public Module {
 public:
  Tensor forward(const Tensor& x) override { return reshape(x, {x.size(0), -1}); }
};

// Children named "0", "1", ... , called in turn.
class Sequential : public Module {
 public:
  Sequential() = default;
  // Builds a module in place: sequential.add<Linear>(784, 10).
  template <class M, class... Args>
  M& add(Args&&... args) {
    auto owned = std::make_unique<M>(std::forward<Args>(args)...);
    M& module = *owned;
    register_module(std::to_string(modules_.size()), module);
    modules_.push_back(std::move(owned));
    return module;
  }
  Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::size_t size() const { return modules_.size(); }
  [[nodiscard]] Module& operator[](std::size_t i) const { return *modules_.at(i); }

 private:
  std::vector<std::unique_ptr<Module>> modules_;
};

// Linear layers of these widths with ReLU between them: MLP({784, 1024, 1024, 10}). Images are
// flattened. Parameters are named as those of the same torch.nn.Sequential: "0.weight", "2.weight".
class MLP : public Sequential {
 public:
  explicit MLP(const std::vector<std::int64_t>& widths);
  Tensor forward(const Tensor& x) override;
};

}  // namespace ringsmith
