// A table of how ringsmith computes each operation of the reference set, one file per group
// (ops_elementwise.cpp, ...). An operation that is not in the table fails the test.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "runtime/tensor/tensor.hpp"

namespace ringsmith::reference {

using Tensors = std::map<std::string, Tensor>;

struct Call {
  const nlohmann::json& attrs;
  const Tensors& inputs;
  Tensors& extra;  // additional results, by their names in the set

  [[nodiscard]] const Tensor& in(const std::string& name) const;  // throws UsageError if absent
  [[nodiscard]] Tensor optional_in(const std::string& name) const;
};

using Op = std::function<Tensor(const Call&)>;
using OpTable = std::map<std::string, Op>;

void add_elementwise(OpTable& table);
void add_reductions(OpTable& table);
void add_shapes(OpTable& table);
void add_products(OpTable& table);
void add_losses(OpTable& table);
void add_images(OpTable& table);
void add_models(OpTable& table);

[[nodiscard]] const OpTable& op_table();

}  // namespace ringsmith::reference
