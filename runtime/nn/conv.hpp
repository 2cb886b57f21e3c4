// Layers for images, NCHW. Shapes as in runtime/autograd/functions.hpp, initial values as
// PyTorch's.
#pragma once

#include "runtime/autograd/functions.hpp"
#include "runtime/nn/module.hpp"

namespace ringsmith {

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

// Normalises each channel over the batch in training, by running averages in evaluation. The
// averages are buffers: under DDP they are rank 0's, not those of the global batch.
class BatchNorm2d : public Module {
 public:
  explicit BatchNorm2d(std::int64_t channels, double momentum = 0.1, double eps = 1e-5);
  Tensor forward(const Tensor& x) override;
  Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  double momentum_, eps_;
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

}  // namespace ringsmith
