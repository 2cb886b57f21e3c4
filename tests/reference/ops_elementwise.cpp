#include <nlohmann/json.hpp>

#include "runtime/autograd/functions.hpp"
#include "tests/reference/ops.hpp"

namespace ringsmith::reference {

namespace {

Op unary(Tensor (*f)(const Tensor&)) {
  return [f](const Call& c) { return f(c.in("x")); };
}

Op binary(Tensor (*f)(const Tensor&, const Tensor&)) {
  return [f](const Call& c) { return f(c.in("a"), c.in("b")); };
}

Tensor gelu_of(const Call& c) {
  const auto approximate = c.attrs.at("approximate").get<std::string>();
  require(approximate == "none" || approximate == "tanh", "gelu: approximate=" + approximate);
  return gelu(c.in("x"), approximate == "none" ? Gelu::erf : Gelu::tanh);
}

Tensor dropout_of(const Call& c) {
  return dropout(c.in("x"), c.attrs.at("p").get<double>(), c.attrs.at("training").get<bool>());
}

// x has several uses, whose gradients are added.
Tensor reuse(const Call& c) {
  const auto formula = c.attrs.at("formula").get<std::string>();
  require(formula == "y = x*x + x; y*y.sum() + relu(y)", "reuse: unknown formula " + formula);
  const Tensor& x = c.in("x");
  const Tensor y = x * x + x;
  return y * sum(y) + relu(y);
}

}  // namespace

void add_elementwise(OpTable& table) {
  table["add"] = binary(add);
  table["sub"] = binary(sub);
  table["mul"] = binary(mul);
  table["div"] = binary(div);
  table["pow"] = [](const Call& c) { return pow(c.in("x"), c.attrs.at("exponent").get<double>()); };
  table["exp"] = unary(exp);
  table["log"] = unary(log);
  table["sqrt"] = unary(sqrt);
  table["tanh"] = unary(tanh);
  table["sigmoid"] = unary(sigmoid);
  table["relu"] = unary(relu);
  table["gelu"] = gelu_of;
  table["dropout"] = dropout_of;
  table["reuse"] = reuse;
}

}  // namespace ringsmith::reference
