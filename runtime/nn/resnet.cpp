#include "runtime/nn/resnet.hpp"

#include <array>
#include <cmath>
#include <string>

#include "runtime/base/error.hpp"
#include "runtime/base/rng.hpp"

namespace ringsmith {

namespace {

Conv2dOptions without_bias(std::int64_t kernel, std::int64_t stride) {
  const std::int64_t padding = kernel / 2;  // at stride 1 the image size is unchanged
  return {.stride = {stride, stride}, .padding = {padding, padding}, .bias = false};
}

// Number of blocks in each of the four layers.
std::array<int, 4> blocks_of(int depth) {
  if (depth == 18) return {2, 2, 2, 2};
  if (depth == 34 || depth == 50) return {3, 4, 6, 3};
  throw UsageError("ResNet: depth must be 18, 34 or 50, got " + std::to_string(depth));
}

const ResNetOptions& checked(const ResNetOptions& o) {
  (void)blocks_of(o.depth);
  require(o.classes >= 1 && o.channels >= 1 && o.width >= 1,
          "ResNet: classes, channels and width must be at least 1");
  return o;
}

// N(0, 2 / (out kernel^2)): Kaiming normal for ReLU, with fan-out.
void initialise(Module& module) {
  if (auto* conv = dynamic_cast<Conv2d*>(&module)) {
    const auto fan_out = static_cast<double>(conv->weight.numel() / conv->weight.size(1));
    fill_normal(conv->weight.span<float>(), 0, std::sqrt(2.0) / std::sqrt(fan_out),
                default_generator());
  }
}

}  // namespace

ResidualBlock::ResidualBlock(std::int64_t in, const std::vector<Conv>& convs) {
  std::int64_t channels = in, stride = 1;
  for (const Conv& conv : convs) {
    const Pair kernel{conv.kernel, conv.kernel};
    convs_.push_back(std::make_unique<Conv2d>(channels, conv.out, kernel,
                                              without_bias(conv.kernel, conv.stride)));
    norms_.push_back(std::make_unique<BatchNorm2d>(conv.out));
    const std::string number = std::to_string(convs_.size());
    register_module("conv" + number, *convs_.back());
    register_module("bn" + number, *norms_.back());
    channels = conv.out;
    stride *= conv.stride;
  }
  if (stride == 1 && channels == in) return;
  downsample_.emplace();
  downsample_->add<Conv2d>(in, channels, Pair{1, 1}, without_bias(1, stride));
  downsample_->add<BatchNorm2d>(channels);
  register_module("downsample", *downsample_);
}

Tensor ResidualBlock::forward(const Tensor& x) {
  Tensor y = x;
  for (std::size_t i = 0; i < convs_.size(); ++i) {
    if (i > 0) y = relu(y);
    y = (*norms_[i])((*convs_[i])(y));
  }
  return relu(y + (downsample_ ? (*downsample_)(x) : x));
}

ResNet::ResNet(const ResNetOptions& o)
    : options_(checked(o)),
      conv1_(o.channels, o.width, o.small_stem ? Pair{3, 3} : Pair{7, 7},
             o.small_stem ? without_bias(3, 1) : without_bias(7, 2)),
      bn1_(o.width) {
  register_module("conv1", conv1_);
  register_module("bn1", bn1_);
  std::int64_t channels = o.width, planes = o.width;
  const auto blocks = blocks_of(o.depth);
  for (std::size_t i = 0; i < blocks.size(); ++i, planes *= 2) {
    add_blocks(layers_[i], channels, planes, blocks[i], i == 0 ? 1 : 2);
    register_module("layer" + std::to_string(i + 1), layers_[i]);
  }
  fc_.emplace(channels, o.classes);
  register_module("fc", *fc_);
  // Replaces the initial values from the conv layers' constructors, as in torchvision.
  apply(initialise);
}

void ResNet::add_blocks(Sequential& stage, std::int64_t& in, std::int64_t planes, int blocks,
                        std::int64_t stride) const {
  for (int b = 0; b < blocks; ++b, stride = 1) {
    std::vector<ResidualBlock::Conv> convs{{planes, 3, stride}, {planes, 3, 1}};
    if (options_.depth >= 50) convs = {{planes, 1, 1}, {planes, 3, stride}, {4 * planes, 1, 1}};
    stage.add<ResidualBlock>(in, convs);
    in = convs.back().out;
  }
}

Tensor ResNet::forward(const Tensor& x) {
  Tensor y = relu(bn1_(conv1_(x)));
  if (!options_.small_stem) y = max_pool2d(y, {3, 3}, {2, 2}, {1, 1});
  for (Sequential& layer : layers_) y = layer(y);
  y = global_avg_pool2d(y);
  return (*fc_)(view(y, {y.size(0), y.size(1)}));
}

}  // namespace ringsmith
