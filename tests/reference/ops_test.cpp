// Compares every operation's results and gradients with PyTorch's, with the fast kernels, with the
// oracles, and on a device (RINGSMITH_TEST_DEVICE).
#include "tests/reference/ops.hpp"

#include <cstdio>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "runtime/autograd/functions.hpp"
#include "tests/reference/compare.hpp"
#include "tests/reference/data.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/device.hpp"
#include "tests/support/kernel_mode.hpp"

using namespace ringsmith;
using namespace ringsmith::reference;

namespace {

// Returns the float input with the most elements; undefined if there is none.
Tensor largest(const Tensors& inputs) {
  Tensor found;
  for (const auto& [name, t] : inputs)
    if (is_floating(t.dtype()) && (!found.defined() || t.numel() > found.numel())) found = t;
  return found;
}

std::vector<std::string> complaints(const nlohmann::json& doc) {
  std::vector<std::string> found;
  const auto note = [&](const std::string& what, const std::string& why) {
    if (!why.empty()) found.push_back(what + ": " + why);
  };
  const auto op = op_table().find(doc.at("op").get<std::string>());
  if (op == op_table().end()) return {"operation " + doc.at("op").dump() + " is not in the table"};

  Tensors inputs, extra;
  for (const auto& [name, entry] : doc.at("inputs").items()) {
    inputs[name] = tensor(entry).to(test::device());
    if (doc.at("grads").contains(name)) inputs[name].requires_grad_();
  }
  const nlohmann::json& err = doc.at("torch_err");
  const Tensor output = op->second({doc.at("attrs"), inputs, extra});
  const Tensor want = tensor(doc.at("output"));
  note("output",
       difference(output, want, tolerance(want, err.at("output").get<double>(), largest(inputs))));
  for (const auto& [name, entry] : doc.at("extra").items()) {
    const Tensor expected = tensor(entry);
    note(name, difference(extra[name], expected, tolerance(expected, 0)));
  }
  if (!found.empty()) return found;  // a gradient of the wrong shape would only throw

  const Tensor grad_output = tensor(doc.at("grad_output")).to(test::device());
  output.backward(grad_output);
  for (const auto& [name, entry] : doc.at("grads").items()) {
    const Tensor expected = tensor(entry);
    note("gradient of " + name,
         difference(inputs.at(name).grad(), expected,
                    tolerance(expected, err.at(name).get<double>(), grad_output)));
  }
  return found;
}

void check_all() {
  if (!has_part("ops")) return;
  for (const std::string& name : list("ops")) {
    INFO("case " << name << ", kernels "
                 << (kernels::mode() == kernels::Mode::fast ? "fast" : "oracle"));
    std::string all;
    try {
      for (const std::string& c : complaints(load("ops/" + name + ".json"))) all += c + "\n";
    } catch (const std::exception& e) {
      all = e.what();
    }
    CHECK(all == "");
  }
}

}  // namespace

TEST_CASE("the set and its index name the same operator cases") {
  if (!has_part("ops")) return;
  const auto names = load("index.json").at("ops").get<std::vector<std::string>>();
  const std::vector<std::string> files = list("ops");
  const std::set<std::string> indexed(names.begin(), names.end());
  CHECK(indexed.size() == names.size());
  CHECK(indexed == std::set<std::string>(files.begin(), files.end()));
  std::set<std::string> operations;
  for (const std::string& name : names)
    operations.insert(load("ops/" + name + ".json").at("op").get<std::string>());
  fmt::print("reference: {} operator cases of {} operations\n", names.size(), operations.size());
  std::fflush(stdout);
  if (is_shipped_set()) {
    CHECK(names.size() == 86);
    CHECK(operations.size() == 42);
  }
}

TEST_CASE("operators agree with PyTorch with the fast kernels", "[on_device]") {
  const test::KernelMode fast(kernels::Mode::fast);
  check_all();
}

TEST_CASE("operators agree with PyTorch with the oracle kernels") {
  const test::KernelMode oracle(kernels::Mode::oracle);
  check_all();
}
