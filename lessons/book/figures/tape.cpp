// book_tape: an expression of named numbers, its graph, and the backward that walks it: which node
// runs when, what flows along its edges, and when each leaf's hook fires.
//
//     book_tape "(w*x + b)*(w*x + b)" w=3 x=2 b=1
//
// A live figure of the book: runtime/autograd, compiled for the page, records what it draws.
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>

#include "kernels/mode.hpp"
#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"
#include "runtime/autograd/engine.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/tensor_grad.hpp"

using namespace ringsmith;
using nlohmann::json;

namespace {

constexpr std::size_t kMostNodes = 40;

float number(const Tensor& t) { return t.defined() ? t.item<float>() : 0.0F; }

// One value of the forward pass: a leaf, or the result of an operation on earlier ones.
struct Item {
  std::string label;        // "w", "2" or "*"
  std::vector<int> inputs;  // items
  Tensor value;
  bool leaf = false;
};

// sum := product {(+|-) product};  product := factor {(*|/) factor}
// factor := - factor | name | number | (sum) | function(sum)
class Parser {
 public:
  Parser(const std::string& text, const std::map<std::string, double>& given)
      : text_(text), given_(given) {}

  std::vector<Item> parse() {
    sum();
    require(peek() == '\0', fmt::format("'{}': '{}' cannot follow there", text_, peek()));
    return std::move(items_);
  }

 private:
  char peek() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) { return peek() == c && ++at_ > 0; }

  int add(std::string label, std::vector<int> inputs, Tensor value, bool leaf = false) {
    require(items_.size() < kMostNodes,
            fmt::format("'{}' has more than {} values: a shorter one", text_, kMostNodes));
    items_.push_back({std::move(label), std::move(inputs), std::move(value), leaf});
    return static_cast<int>(items_.size()) - 1;
  }
  [[nodiscard]] const Tensor& value(int item) const {
    return items_[static_cast<std::size_t>(item)].value;
  }

  int sum() {
    int left = product();
    for (;;)
      if (take('+')) {
        const int right = product();
        left = add("+", {left, right}, ringsmith::add(value(left), value(right)));
      } else if (take('-')) {
        const int right = product();
        left = add("-", {left, right}, sub(value(left), value(right)));
      } else {
        return left;
      }
  }

  int product() {
    int left = factor();
    for (;;)
      if (take('*')) {
        const int right = factor();
        left = add("*", {left, right}, mul(value(left), value(right)));
      } else if (take('/')) {
        const int right = factor();
        left = add("/", {left, right}, div(value(left), value(right)));
      } else {
        return left;
      }
  }

  int factor() {
    require(++depth_ < 64, fmt::format("'{}': too deep", text_));
    const int item = factor_of(peek());
    --depth_;
    return item;
  }

  int factor_of(char first) {
    if (take('-')) {
      const int inner = factor();
      return add("-", {inner}, neg(value(inner)));
    }
    if (take('(')) return closed(sum());
    if (std::isdigit(static_cast<unsigned char>(first)) != 0 || first == '.') return constant();
    require(std::isalpha(static_cast<unsigned char>(first)) != 0,
            fmt::format("'{}': a name, a number or ( is missing at its character {}", text_, at_));
    std::string name;
    while (at_ < text_.size() && std::isalnum(static_cast<unsigned char>(text_[at_])) != 0)
      name += text_[at_++];
    return peek() == '(' ? function(name) : leaf(name);
  }

  int closed(int item) {
    require(take(')'), fmt::format("'{}': a ) is missing at its character {}", text_, at_));
    return item;
  }

  int constant() {
    char* end = nullptr;
    const char* const begin = text_.c_str() + at_;
    const double given = std::strtod(begin, &end);
    const auto length = static_cast<std::size_t>(end - begin);
    require(length > 0, fmt::format("'{}': no number at its character {}", text_, at_));
    const std::string label = text_.substr(at_, length);
    at_ += length;
    return add(label, {}, scalar(given));
  }

  int function(const std::string& name) {
    const std::map<std::string, Tensor (*)(const Tensor&)> known = {
        {"exp", &ringsmith::exp},   {"log", &ringsmith::log},         {"sqrt", &ringsmith::sqrt},
        {"tanh", &ringsmith::tanh}, {"sigmoid", &ringsmith::sigmoid}, {"relu", &ringsmith::relu}};
    const auto found = known.find(name);
    require(found != known.end(),
            fmt::format("'{}' is no function: exp, log, sqrt, tanh, sigmoid or relu", name));
    (void)take('(');
    const int inner = closed(sum());
    return add(name, {inner}, found->second(value(inner)));
  }

  int leaf(const std::string& name) {
    if (const auto known = leaves_.find(name); known != leaves_.end()) return known->second;
    const auto given = given_.find(name);
    require(given != given_.end(), fmt::format("{} has no value: add {}=1", name, name));
    return leaves_[name] = add(name, {}, scalar(given->second).requires_grad_(), true);
  }

  std::string text_;
  const std::map<std::string, double>& given_;
  std::vector<Item> items_;
  std::map<std::string, int> leaves_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

// One event of backward: a node ran, or a leaf's hook fired.
struct Moment {
  int item = 0;
  std::string name;  // "MulBackward"; "hook"
  float arrived = 0;
  std::vector<float> passed_on;  // one for each input
};

// Replaces a node: lets it do the work, and records the gradients that go in and come out.
class Watched : public Node {
 public:
  Watched(std::shared_ptr<Node> inner, int item, std::vector<Moment>& moments)
      : inner_(std::move(inner)), item_(item), moments_(moments) {
    edges = inner_->edges;
    outputs = inner_->outputs;
    sequence = inner_->sequence;
  }
  std::vector<Tensor> apply(std::vector<Tensor> grads) override {
    Moment moment{item_, inner_->name(), number(grads.at(0)), {}};
    std::vector<Tensor> out = inner_->apply(std::move(grads));
    for (const Tensor& grad : out) moment.passed_on.push_back(number(grad));
    moments_.push_back(std::move(moment));
    return out;
  }
  [[nodiscard]] std::string name() const override { return inner_->name(); }
  void release() override { inner_->release(); }

 private:
  std::shared_ptr<Node> inner_;
  int item_;
  std::vector<Moment>& moments_;
};

std::vector<Moment> watched_backward(const std::vector<Item>& items) {
  std::vector<Moment> moments;
  std::map<const Node*, std::shared_ptr<Node>> stand_ins;
  std::shared_ptr<Node> last;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    if (!item.value.requires_grad()) continue;
    if (item.leaf) {
      register_post_accumulate_grad_hook(item.value, [&moments, i](const Tensor& leaf) {
        moments.push_back({static_cast<int>(i), "hook", number(leaf.grad()), {}});
      });
      continue;
    }
    const std::shared_ptr<Node> node = autograd::gradient_edge(item.value).node;
    last = std::make_shared<Watched>(node, static_cast<int>(i), moments);
    for (Edge& edge : last->edges)
      if (const auto known = stand_ins.find(edge.node.get()); known != stand_ins.end())
        edge.node = known->second;
    stand_ins[node.get()] = last;
  }
  require(items.back().value.requires_grad(), "the expression has no named number: nothing to do");
  if (last == nullptr) {  // the expression is a leaf
    items.back().value.backward();
    return moments;
  }
  Tensor root = items.back().value.detach();
  connect(last, {}, root);
  root.backward();
  return moments;
}

std::string as_text(const std::vector<Item>& items, const std::vector<Moment>& moments) {
  const auto called = [&](int i) {
    const Item& item = items[static_cast<std::size_t>(i)];
    return item.inputs.empty() ? item.label : fmt::format("v{}", i);
  };
  std::string out = "forward\n";
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    if (item.inputs.empty()) {
      if (item.leaf) out += fmt::format("  {} = {:g}\n", item.label, number(item.value));
      continue;
    }
    std::string formula;
    if (item.inputs.size() == 2)
      formula = fmt::format("{} {} {}", called(item.inputs[0]), item.label, called(item.inputs[1]));
    else
      formula = (item.label == "-" ? "-" + called(item.inputs[0])
                                   : fmt::format("{}({})", item.label, called(item.inputs[0])));
    out +=
        fmt::format("  {} = {} = {:g}\n", called(static_cast<int>(i)), formula, number(item.value));
  }
  out += "backward\n";
  for (const Moment& m : moments) {
    const Item& item = items[static_cast<std::size_t>(m.item)];
    if (m.name == "hook") {
      out += fmt::format("  hook of {}: its gradient is complete: {:g}\n", item.label, m.arrived);
      continue;
    }
    out += fmt::format("  {} of {} gets {:g}", m.name, called(m.item), m.arrived);
    for (std::size_t i = 0; i < m.passed_on.size(); ++i)
      if (items[static_cast<std::size_t>(item.inputs[i])].value.requires_grad())
        out += fmt::format(", gives {} {:g}", called(item.inputs[i]), m.passed_on[i]);
    out += "\n";
  }
  return out;
}

std::string as_json(const std::vector<Item>& items, const std::vector<Moment>& moments) {
  json values = json::array(), steps = json::array();
  for (const Item& item : items)
    values.push_back({{"label", item.label},
                      {"inputs", item.inputs},
                      {"leaf", item.leaf},
                      {"wants_gradient", item.value.requires_grad()},
                      {"value", fmt::format("{:g}", number(item.value))}});
  for (const Moment& m : moments) {
    json passed = json::array();
    for (const float grad : m.passed_on) passed.push_back(fmt::format("{:g}", grad));
    steps.push_back({{"item", m.item},
                     {"name", m.name},
                     {"arrived", fmt::format("{:g}", m.arrived)},
                     {"passed_on", passed}});
  }
  return json{{"values", values}, {"moments", steps}}.dump();
}

std::map<std::string, double> values_of(const std::vector<std::string>& given) {
  std::map<std::string, double> out;
  for (const std::string& one : given) {
    const std::size_t equals = one.find('=');
    char* end = nullptr;
    const std::string text = equals == std::string::npos ? "" : one.substr(equals + 1);
    const double value = std::strtod(text.c_str(), &end);
    require(equals > 0 && !text.empty() && *end == '\0' && std::isfinite(value),
            fmt::format("'{}': write a name and its number, as w=3", one));
    out[one.substr(0, equals)] = value;
  }
  return out;
}

int run(int argc, char** argv) {
  std::string expression = "(w*x + b)*(w*x + b)";
  std::vector<std::string> given;
  bool as_data = false;
  apps::CommandLine app("Shows the graph of an expression, and the backward that walks it.",
                        "book_tape");
  app.add_option("expression", expression, "of names, numbers, + - * / ( ) and functions");
  app.add_option("values", given, "w=3 x=2 ...: a leaf for each name");
  app.add_flag("--json", as_data, "print JSON");
  app.footer("\nFunctions: exp, log, sqrt, tanh, sigmoid, relu.\n");
  if (!app.parse(argc, argv)) return 0;
  if (given.empty()) given = {"w=3", "x=2", "b=1"};

  kernels::set_mode(kernels::Mode::oracle);  // plain loops: the same numbers on every processor
  const std::map<std::string, double> values = values_of(given);
  const std::vector<Item> items = Parser(expression, values).parse();
  const std::vector<Moment> moments = watched_backward(items);
  fmt::print("{}", as_data ? as_json(items, moments) + "\n" : as_text(items, moments));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program("book_tape", [&] { return run(argc, argv); });
}
