#include <nlohmann/json.hpp>

#include "runtime/autograd/functions.hpp"
#include "tests/reference/ops.hpp"

namespace ringsmith::reference {

namespace {

Tensor matmul_of(const Call& c) {
  const auto operand = [&](const char* name, const char* flag) {
    const Tensor& t = c.in(name);
    return c.attrs.value(flag, false) ? transpose(t, -2, -1) : t;
  };
  return matmul(operand("a", "trans_a"), operand("b", "trans_b"));
}

Tensor attention_of(const Call& c) {
  const auto scale = c.attrs.at("scale").get<std::string>();
  require(scale == "1/sqrt(d)", "attention: unknown scale " + scale);
  return attention(c.in("q"), c.in("k"), c.in("v"), c.attrs.at("causal").get<bool>());
}

}  // namespace

void add_products(OpTable& table) {
  table["matmul"] = matmul_of;
  table["attention"] = attention_of;
  table["linear"] = [](const Call& c) {
    return linear(c.in("x"), c.in("weight"), c.optional_in("bias"));
  };
}

}  // namespace ringsmith::reference
