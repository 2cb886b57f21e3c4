#include "tests/reference/ops.hpp"

namespace ringsmith::reference {

const Tensor& Call::in(const std::string& name) const {
  const auto found = inputs.find(name);
  require(found != inputs.end(), "the case has no input '" + name + "'");
  return found->second;
}

Tensor Call::optional_in(const std::string& name) const {
  const auto found = inputs.find(name);
  return found == inputs.end() ? Tensor{} : found->second;
}

const OpTable& op_table() {
  static const OpTable table = [] {
    OpTable t;
    add_elementwise(t);
    add_reductions(t);
    add_shapes(t);
    add_products(t);
    add_losses(t);
    add_images(t);
    add_models(t);
    return t;
  }();
  return table;
}

}  // namespace ringsmith::reference
