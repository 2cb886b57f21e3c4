// Models and devices of the DataParallel tests, which run twice: with all replicas on the CPU, and
// with each on its own device (RINGSMITH_TEST_DEVICE).
#pragma once

#include <cmath>
#include <memory>

#include "runtime/autograd/functions.hpp"
#include "runtime/nn/layers.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/data_parallel.hpp"
#include "runtime/tensor/tensor.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/device.hpp"
#include "tests/support/toy_models.hpp"

namespace ringsmith::test {

// Returns devices for n replicas, from device() on. With the emulator's devices, the root is
// device 1, to catch code that assumes 0.
inline std::vector<Device> replica_devices(int n) {
  std::vector<Device> out;
  for (int i = 0; i < n; ++i)
    out.push_back(device().is_cpu() ? Device::cpu()
                                    : Device::cuda((device().index + i) % device_count()));
  return out;
}

// A linear layer that uses broadcasting instead of a matrix product.
class Dense : public Module {
 public:
  Dense(std::int64_t in, std::int64_t out, std::uint32_t seed, double scale) {
    register_parameter("weight", weight, mul(integers({out, in}, seed), scale));
    register_parameter("bias", bias, mul(integers({out}, seed + 1), scale));
  }
  Tensor forward(const Tensor& x) override { return sum(mul(unsqueeze(x, 1), weight), {2}) + bias; }
  Tensor weight, bias;
};

// (n, 5) -> (n, 3), with two untied layers and a frozen gain between them.
class Net : public Module {
 public:
  explicit Net(std::uint32_t seed = 1, double scale = 1)
      : first(5, 7, seed, scale), second(7, 3, seed + 10, scale) {
    register_parameter("gain", gain, full({7}, 2.0));
    gain.requires_grad_(false);
    register_module("first", first);
    register_module("second", second);
  }
  Tensor forward(const Tensor& x) override { return second(relu(first(x)) * gain); }
  Tensor gain;
  Dense first, second;
};

// Results, on the host.
struct Trained {
  std::vector<std::vector<float>> outputs, gradients, parameters;
  bool operator==(const Trained&) const = default;
};

// Makes one training step per batch. `forward` is the model's or DataParallel's.
inline Trained train(Module& model, const std::function<Tensor(const Tensor&)>& forward,
                     const std::vector<Tensor>& batches, double lr) {
  Trained out;
  std::vector<Tensor> trained;
  for (const Tensor& p : model.parameters())
    if (p.requires_grad()) trained.push_back(p);
  SGD optimizer(trained, {.lr = lr});
  for (const Tensor& x : batches) {
    optimizer.zero_grad();
    const Tensor y = forward(x.to(model.device()));
    out.outputs.push_back(y.to_vector<float>());
    sum(relu(y)).backward();
    for (const Tensor& p : trained)
      out.gradients.push_back(p.grad().defined() ? p.grad().to_vector<float>()
                                                 : std::vector<float>());
    optimizer.step();
  }
  for (const Tensor& p : model.parameters()) out.parameters.push_back(p.to_vector<float>());
  return out;
}

inline Trained train_serial(const std::vector<Tensor>& batches, double scale, double lr) {
  Net net(1, scale);
  net.to(replica_devices(1)[0]);
  return train(
      net, [&](const Tensor& x) { return net(x); }, batches, lr);
}

inline Trained train_replicated(int n, const std::vector<Tensor>& batches, double scale, double lr,
                                DataParallelOptions options = {}) {
  Net net(1, scale);
  net.to(replica_devices(n)[0]);
  DataParallel dp(
      net, [] { return std::make_unique<Net>(99); }, replica_devices(n), options);
  return train(
      net, [&](const Tensor& x) { return dp.forward(x); }, batches, lr);
}

// Returns the largest difference relative to 1 + the magnitude. Returns NaN if a value is NaN or
// if shapes differ.
inline double difference(const std::vector<std::vector<float>>& a,
                         const std::vector<std::vector<float>>& b) {
  if (a.size() != b.size()) return std::nan("");
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size()) return std::nan("");
    for (std::size_t j = 0; j < a[i].size(); ++j) {
      const double d = std::abs(double{a[i][j]} - b[i][j]) / (1 + std::abs(double{b[i][j]}));
      if (!(d <= worst)) worst = d;  // a NaN is returned below
      if (std::isnan(worst)) return worst;
    }
  }
  return worst;
}

}  // namespace ringsmith::test
