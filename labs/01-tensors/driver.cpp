// Runs the judge's program on the student's tensors and reports the result of each step. A program
// is text; reports name a step by the part after #:
//
//     t0 = empty 2 3 # A; t1 = transpose t0 0 1 # A.transpose(0, 1); t2 = drop t0 # A.drop()
#include LAB01_TENSOR

#include "labs/kit/driver.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "labs/kit/audit.hpp"

using kit::Audit;
using lab01::Shape;
using lab01::Tensor;

namespace {

// One step: its operands (results of earlier steps) and its numbers.
struct Step {
  std::string name;
  std::vector<std::size_t> operands;
  Shape numbers;
  double value = 0;  // of fill_
  std::string label;
};
const char* volatile current = "";  // label of the current step, for crashes and the watchdog

std::vector<Step> steps_of(const std::string& program) {
  std::vector<Step> steps;
  std::istringstream lines(program);
  for (std::string line; std::getline(lines, line, ';');) {
    const std::size_t hash = line.find('#');
    std::istringstream words(line.substr(0, hash));
    std::string result, equals, word;
    Step step;
    words >> result >> equals >> step.name;
    while (words >> word)
      if (word[0] == 't')
        step.operands.push_back(std::stoul(word.substr(1)));
      else if (step.name == "fill_")
        step.value = std::stod(word);
      else
        step.numbers.push_back(std::stoll(word));
    step.label = line.substr(std::min(hash + 2, line.size()));
    steps.push_back(step);
  }
  return steps;
}

using Results = std::vector<std::optional<Tensor>>;

const std::map<std::string, std::function<Tensor(const Tensor&, const Shape&)>> views = {
    {"transpose", [](auto& t, auto& n) { return t.transpose(int(n.at(0)), int(n.at(1))); }},
    {"permute", [](auto& t, auto& n) { return t.permute(std::vector<int>(n.begin(), n.end())); }},
    {"slice", [](auto& t, auto& n) { return t.slice(int(n.at(0)), n.at(1), n.at(2), n.at(3)); }},
    {"select", [](auto& t, auto& n) { return t.select(int(n.at(0)), n.at(1)); }},
    {"expand", [](auto& t, auto& n) { return t.expand(n); }},
    {"view", [](auto& t, auto& n) { return t.view(n); }},
    {"reshape", [](auto& t, auto& n) { return t.reshape(n); }},
    {"contiguous", [](auto& t, auto&) { return t.contiguous(); }},
    {"same", [](auto& t, auto&) { return t; }},
};

// Returns a tensor whose numbers tell their origin: position 5 of step 2 holds 3005. The numbers
// are stored through the tensor's own storage, as in lab 13, and do not count as the step's cost.
Tensor filled(const Shape& sizes, std::size_t step) {
  Tensor t = Tensor::empty(sizes);
  kit::Storage& storage = t.storage();
  double number = 1000 * (double(step) + 1);
  for (double& one : Audit::numbers(storage.number())) one = number++;
  return t;
}

// Returns the positions of all elements, as the student's position() computes them.
Shape positions(const Tensor& t) {
  Shape all, index(t.dim(), 0);
  bool more = t.numel() > 0;
  while (more) {
    all.push_back(t.position(index));
    more = false;
    for (std::size_t d = t.dim(); d-- > 0 && !more;) {
      more = ++index[d] < t.sizes()[d];
      if (!more) index[d] = 0;
    }
  }
  return all;
}

// Records the tensor's storage, offset, numel, sizes, strides and contiguity. After empty,
// contiguity is left out, because empty is task 1 and is_contiguous is task 2.
void put_tensor(kit::Observation& out, const std::string& k, const Tensor& t, bool made) {
  Shape row{t.storage().number(), t.offset(), t.numel()};
  if (!made) row.push_back(t.is_contiguous());
  out.put("tensor." + k, row);
  out.put("sizes." + k, t.sizes());
  out.put("strides." + k, t.strides());
}

void perform(const Step& step, const std::string& k, Results& results, kit::Observation& out) {
  const auto operand = [&](std::size_t i) -> Tensor& {
    return results.at(step.operands.at(i)).value();
  };
  Tensor* result = nullptr;
  if (const auto view = views.find(step.name); view != views.end()) {
    results.back() = view->second(operand(0), step.numbers);
  } else if (step.name == "empty") {
    results.back() = filled(step.numbers, results.size() - 1);
  } else if (step.name == "sum") {
    out.put("number." + k, operand(0).sum());
  } else if (step.name == "fill_") {
    operand(0).fill_(step.value);
  } else if (step.name == "copy_") {
    operand(0).copy_(operand(1));
  } else if (step.name == "add_") {
    operand(0).add_(operand(1));
  } else if (step.name == "position") {
    out.put("number." + k, double(operand(0).position(step.numbers)));
  } else if (step.name == "positions") {
    out.put("positions." + k, positions(operand(0)));
  } else if (step.name == "drop") {
    results.at(step.operands.at(0)).reset();
  } else {
    throw std::logic_error("no step named " + step.name);
  }
  if (results.back()) result = &*results.back();
  if (result != nullptr) put_tensor(out, k, *result, step.name == "empty");
}

// Prints the current step when a signal hits the student's code. When this handler returns, the
// signal recurs with its default action.
void crashed(int signal) {
  std::signal(signal, SIG_DFL);
  std::fputs(current, stderr);
}

}  // namespace

KIT_SCENARIO(program) {
  for (const int signal : {SIGSEGV, SIGFPE, SIGABRT, SIGBUS}) std::signal(signal, crashed);
  kit::describe_hangs_with([] { return std::string(current); });
  Results results;
  const Shape program = in.integers("program");
  const std::vector<Step> steps = steps_of(std::string(program.begin(), program.end()));
  for (const Step& step : steps) {
    current = step.label.c_str();
    const std::string k = std::to_string(results.size());
    results.emplace_back();
    Audit::begin();
    std::string how = "done", why;
    try {
      perform(step, k, results, out);
    } catch (const kit::Misuse& misuse) {
      how = "misuse", why = misuse.message;
    } catch (const std::invalid_argument& refused) {
      how = "refused", why = refused.what();
    } catch (const std::exception& error) {
      how = "threw", why = error.what();
    }
    out.put("how." + k, how);
    out.put("why." + k, why);
    out.put("cost." + k, Audit::cost());
    Shape live;  // storages that have not been freed
    for (std::int64_t number = 0; number < Audit::count(); ++number)
      if (!Audit::freed(number)) {
        live.push_back(number);
        out.put("numbers." + k + "." + std::to_string(number), Audit::numbers(number));
      }
    out.put("live." + k, live);
    if (how == "misuse" || how == "threw") return;
  }
}

// Runs the functions of tasks 1 and 4 that need no tensors.
KIT_SCENARIO(shapes) {
  const Shape sizes = in.integers("sizes");
  const auto ask = [&](const char* name, auto f) {
    try {
      out.put(name, f());
    } catch (const std::invalid_argument& refused) {
      out.put(std::string("refused.") + name, refused.what());
    }
  };
  ask("numel", [&] { return lab01::numel_of(sizes); });
  if (in.has("row_major")) ask("strides", [&] { return lab01::row_major(sizes); });
  if (in.has("elements"))
    ask("resolved", [&] { return lab01::resolve(sizes, in.integer("elements")); });
}
