// Residual networks for images: ResNet-18, -34 and -50, with torchvision's parameter names, order
// and initial values, so that weights can be exchanged.
//
//   (n, c, h, w) -> stem -> layer1 -> layer2 -> layer3 -> layer4 -> mean -> fc -> (n, classes)
//         channels: width    x 1       x 2       x 4       x 8      of each channel's pixels
//                                h, w: halved    halved    halved
//
//   block:  x ---+--> conv bn ReLU -> conv bn -----+--> ReLU         18 and 34: two 3x3 kernels
//                |   (conv bn ReLU, twice, conv bn)|                 50: 1x1, 3x3, 1x1 with 4 times
//                +--> identity, or conv 1x1 bn ----+                 the channels
//
// A block only has to learn the difference between its output and its input, and the gradient flows
// back undiminished through the identity. ResNet-50's blocks apply the stride in the 3x3 kernel, as
// in torchvision. He, Zhang, Ren and Sun, "Deep residual learning for image recognition", 2015.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/nn/layers.hpp"

namespace ringsmith {

struct ResNetOptions {
  int depth = 18;  // 18, 34 or 50
  std::int64_t classes = 1000;
  std::int64_t channels = 3;  // of an image
  std::int64_t width = 64;    // channels of the stem and of layer1's 3x3 kernels
  // For images of about 32 x 32: the stem is a 3x3 kernel with stride 1, instead of a 7x7 kernel
  // and 3x3 max pooling, which reduce height and width by a factor of 4. Names are unchanged.
  bool small_stem = false;
};

class ResidualBlock : public Module {
 public:
  struct Conv {
    std::int64_t out, kernel, stride;
  };
  ResidualBlock(std::int64_t in, const std::vector<Conv>& convs);
  Tensor forward(const Tensor& x) override;

 private:
  std::vector<std::unique_ptr<Conv2d>> convs_;
  std::vector<std::unique_ptr<BatchNorm2d>> norms_;
  std::optional<Sequential> downsample_;  // if channels or size change
};

class ResNet : public Module {
 public:
  // Throws UsageError if an option is out of range.
  explicit ResNet(const ResNetOptions& options);
  Tensor forward(const Tensor& x) override;

 private:
  void add_blocks(Sequential& stage, std::int64_t& in, std::int64_t planes, int blocks,
                  std::int64_t stride) const;

  ResNetOptions options_;
  Conv2d conv1_;
  BatchNorm2d bn1_;
  Sequential layers_[4];
  std::optional<Linear> fc_;
};

}  // namespace ringsmith
