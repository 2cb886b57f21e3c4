#include <nlohmann/json.hpp>

#include "runtime/autograd/functions.hpp"
#include "tests/reference/ops.hpp"

namespace ringsmith::reference {

namespace {

std::vector<int> dims_of(const nlohmann::json& dim) {  // null: all
  if (dim.is_null()) return {};
  if (dim.is_array()) return dim.get<std::vector<int>>();
  return {dim.get<int>()};
}

Op reduction(Tensor (*f)(const Tensor&, const std::vector<int>&, bool)) {
  return [f](const Call& c) {
    return f(c.in("x"), dims_of(c.attrs.at("dim")), c.attrs.value("keepdim", false));
  };
}

Tensor max_of(const Call& c) {
  if (c.attrs.at("dim").is_null()) return max(c.in("x"));
  const auto [values, indices] =
      max(c.in("x"), c.attrs.at("dim").get<int>(), c.attrs.value("keepdim", false));
  c.extra["indices"] = indices;
  return values;
}

}  // namespace

void add_reductions(OpTable& table) {
  table["sum"] = reduction(sum);
  table["mean"] = reduction(mean);
  table["max"] = max_of;
  table["var"] = [](const Call& c) {
    return var(c.in("x"), c.attrs.at("dim").get<int>(), c.attrs.at("unbiased").get<bool>(),
               c.attrs.value("keepdim", false));
  };
}

}  // namespace ringsmith::reference
