// Helpers that both drivers of lab 13 use to read a request. Include LAB13_TRAINER first.
#pragma once

#include <algorithm>

#include "labs/kit/driver.hpp"

namespace {

using lab04::Matrix;
using lab04::Parameter;

[[maybe_unused]] std::size_t size(const kit::Request& in, const char* name) {
  return std::size_t(in.integer(name));
}

Matrix matrix(const std::vector<float>& data, std::size_t cols) {
  Matrix m(data.size() / cols, cols);
  std::copy_n(data.begin(), m.data.size(), m.data.begin());
  return m;
}

std::vector<std::size_t> widths_of(const kit::Request& in) {
  const std::vector<std::int64_t> given = in.integers("widths");
  return {given.begin(), given.end()};
}

std::vector<float> values_of(const std::vector<Parameter*>& parameters, bool grads = false) {
  std::vector<float> all;
  for (const Parameter* p : parameters) {
    const std::vector<float>& one = grads ? p->grad : p->value;
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

// Each rank starts with different values; training must start from rank 0's.
template <class AnyModel>
void prepare(const kit::Request& in, AnyModel& model, int rank) {
  const std::vector<float> values = in.floats("values");
  std::size_t at = 0;
  for (Parameter* p : model.parameters())
    for (float& v : p->value) {
      v = values.at(at++);
      if (rank != 0) v += 0.25F * float(rank);  // adding 0 would lose the sign of -0
    }
  for (const std::int64_t p : in.integers("frozen"))
    model.parameters().at(std::size_t(p))->requires_grad = false;
}

template <class Use>
void with_optimizer(const kit::Request& in, const std::vector<Parameter*>& parameters, Use use) {
  if (in.text("optimizer") == "sgd") {
    lab04::Sgd optimizer(
        parameters, {in.number("lr"), in.number("momentum", 0), 0, in.number("weight_decay", 0)});
    use(optimizer);
  } else {
    lab04::AdamW optimizer(parameters, {in.number("lr"), 0.9, 0.999, in.number("eps", 1e-8),
                                        in.number("weight_decay", 0.01)});
    use(optimizer);
  }
}

lab13::Data data_of(const kit::Request& in) {
  return {matrix(in.floats("x"), widths_of(in).front()), in.integers("targets")};
}

}  // namespace
