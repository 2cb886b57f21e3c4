#include <nlohmann/json.hpp>

#include "runtime/autograd/functions.hpp"
#include "tests/reference/ops.hpp"

namespace ringsmith::reference {

namespace {

Tensor transposed(const Call& c) {
  return transpose(c.in("x"), c.attrs.at("dim0").get<int>(), c.attrs.at("dim1").get<int>());
}

Tensor sliced(const Call& c) {
  return slice(c.in("x"), c.attrs.at("dim").get<int>(), c.attrs.at("start").get<std::int64_t>(),
               c.attrs.at("stop").get<std::int64_t>(), c.attrs.at("step").get<std::int64_t>());
}

Tensor concatenated(const Call& c) {
  std::vector<Tensor> parts;  // in the order of their names: a, b, c, ...
  for (const auto& [name, part] : c.inputs) parts.push_back(part);
  return cat(parts, c.attrs.at("dim").get<int>());
}

}  // namespace

void add_shapes(OpTable& table) {
  const auto shape = [](const Call& c) { return c.attrs.at("shape").get<Shape>(); };
  table["transpose"] = transposed;
  table["view"] = [shape](const Call& c) { return view(c.in("x"), shape(c)); };
  table["expand"] = [shape](const Call& c) { return expand(c.in("x"), shape(c)); };
  table["transpose_reshape"] = [shape](const Call& c) { return reshape(transposed(c), shape(c)); };
  table["permute"] = [](const Call& c) {
    return permute(c.in("x"), c.attrs.at("dims").get<std::vector<int>>());
  };
  table["slice"] = sliced;
  table["cat"] = concatenated;
}

}  // namespace ringsmith::reference
