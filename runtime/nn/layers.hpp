// Layers of models. runtime/autograd/functions.hpp describes the shapes. Initial values match
// PyTorch's, so a model starts with the same weights after the same manual_seed.
#pragma once

#include <memory>
#include <vector>

#include "runtime/autograd/functions.hpp"
#include "runtime/nn/module.hpp"

namespace ringsmith {

// (..., in) -> (..., out); weight (out, in).
class Linear : public Module {
 public:
  Linear(std::int64_t in, std::int64_t out, bool with_bias = true);
  Tensor forward(const Tensor& x) override { return linear(x, weight, bias); }
  Tensor weight;
  Tensor bias;  // undefined without bias
};

// i64 (...) -> (..., dim); weight (count, dim).
class Embedding : public Module {
 public:
  Embedding(std::int64_t count, std::int64_t dim);
  Tensor forward(const Tensor& index) override { return embedding(weight, index); }
  Tensor weight;
};

// Normalises over the last dimension.
class LayerNorm : public Module {
 public:
  explicit LayerNorm(std::int64_t dim, double eps = 1e-5);
  Tensor forward(const Tensor& x) override { return layer_norm(x, weight, bias, eps_); }
  // For the input of a Linear layer: under autocast in its dtype.
  [[nodiscard]] Tensor lowered(const Tensor& x) {
    return layer_norm(x, weight, bias, eps_, NormResult::lowered);
  }
  // Returns x + residual and its normalisation, which is lowered().
  [[nodiscard]] AddNorm add(const Tensor& x, const Tensor& residual) {
    return add_layer_norm(x, residual, weight, bias, eps_, NormResult::lowered);
  }
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

// In training each element becomes 0 with probability p and is otherwise divided by 1 - p. Masks
// come from the default generator or from the device's generator. Seed the generators differently
// on each rank, or all ranks drop the same elements.
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
  Tensor forward(const Tensor& x) override;
};

// Calls its children, named "0", "1", ..., in order.
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

// Linear layers of these widths with ReLU between them: MLP({784, 1024, 1024, 10}). Flattens
// images. Parameters are named as in the equivalent torch.nn.Sequential: "0.weight", "2.weight".
class MLP : public Sequential {
 public:
  explicit MLP(const std::vector<std::int64_t>& widths);
  Tensor forward(const Tensor& x) override;
};

// ---- for images, NCHW ----

struct Conv2dOptions {
  Pair stride{1, 1};
  Pair padding{0, 0};
  Pair dilation{1, 1};
  std::int64_t groups = 1;
  bool bias = true;
};

// weight (out, in / groups, kernel.h, kernel.w)
class Conv2d : public Module {
 public:
  Conv2d(std::int64_t in, std::int64_t out, Pair kernel, Conv2dOptions options = {});
  Tensor forward(const Tensor& x) override {
    return conv2d(x, weight, bias, options_.stride, options_.padding, options_.dilation,
                  options_.groups);
  }
  Tensor weight;
  Tensor bias;  // undefined without bias

 private:
  Conv2dOptions options_;
};

// Normalises each channel by the batch's statistics in training, and by running averages in
// evaluation. The averages are buffers. Under DDP they describe rank 0's batches, not the global
// batch, unless convert_sync_batchnorm() (runtime/parallel/beyond/sync_batch_norm.hpp) is used.
class BatchNorm2d : public Module {
 public:
  explicit BatchNorm2d(std::int64_t channels, double momentum = 0.1, double eps = 1e-5);
  Tensor forward(const Tensor& x) override;
  // The type of batch_norm and of its replacements.
  using Function = std::function<Tensor(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                        const Tensor& running_mean, const Tensor& running_var,
                                        bool training, double momentum, double eps)>;
  void set_function(Function function) { function_ = std::move(function); }
  Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  double momentum_, eps_;
  Function function_ = batch_norm;
};

class MaxPool2d : public Module {
 public:
  // A stride of {0, 0} means the kernel's size.
  explicit MaxPool2d(Pair kernel, Pair stride = {0, 0}, Pair padding = {0, 0});
  Tensor forward(const Tensor& x) override { return max_pool2d(x, kernel_, stride_, padding_); }

 private:
  Pair kernel_, stride_, padding_;
};

// (n, c, h, w) -> (n, c, 1, 1)
class GlobalAvgPool2d : public Module {
 public:
  Tensor forward(const Tensor& x) override { return global_avg_pool2d(x); }
};

// Two 3x3 convolutions to 32 and 64 channels with ReLU, 2x2 max pooling and a Linear layer.
// Parameters are named as in the equivalent torch.nn.Sequential: "0.weight", "6.bias".
class SmallCNN : public Sequential {
 public:
  // Images (n, channels, height, width) of at least 6 x 6 pixels.
  SmallCNN(std::int64_t channels, std::int64_t height, std::int64_t width, std::int64_t classes);
};

}  // namespace ringsmith
