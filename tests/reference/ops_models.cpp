#include <nlohmann/json.hpp>

#include "runtime/autograd/functions.hpp"
#include "tests/reference/data.hpp"
#include "tests/reference/ops.hpp"

namespace ringsmith::reference {

namespace {

Tensor batch_norm_of(const Call& c) {
  const Device device = c.in("x").device();
  const Tensor mean = tensor(c.attrs.at("running_mean")).to(device);
  const Tensor var = tensor(c.attrs.at("running_var")).to(device);
  const Tensor y = batch_norm(
      c.in("x"), c.in("weight"), c.in("bias"), mean, var, c.attrs.at("training").get<bool>(),
      c.attrs.at("momentum").get<double>(), c.attrs.at("eps").get<double>());
  c.extra["running_mean"] = mean;
  c.extra["running_var"] = var;
  return y;
}

}  // namespace

void add_models(OpTable& table) {
  table["batchnorm1d"] = batch_norm_of;
  table["batchnorm2d"] = batch_norm_of;
  table["layernorm"] = [](const Call& c) {
    return layer_norm(c.in("x"), c.in("weight"), c.in("bias"), c.attrs.at("eps").get<double>());
  };
  table["embedding"] = [](const Call& c) { return embedding(c.in("weight"), c.in("index")); };
}

}  // namespace ringsmith::reference
