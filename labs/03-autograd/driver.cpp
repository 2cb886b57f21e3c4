// Builds the judge's graph from the student's operations, runs backward, and reports all events in
// order.
#include LAB03_TAPE

#include "labs/kit/driver.hpp"

#include <exception>
#include <malloc.h>
#include <stdexcept>

using lab03::Values;
using lab03::Var;

namespace {

// leaves: lengths[i] values for leaf i. operations: rows of (operation, a, b); their results are
// numbered after the leaves.
std::vector<Var> leaves_of(const kit::Request& in) {
  const std::vector<double> values = in.numbers("values");
  const std::vector<std::int64_t> lengths = in.integers("lengths"), needs = in.integers("needs");
  std::vector<Var> vars;
  auto next = values.begin();
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    vars.push_back(lab03::leaf(Values(next, next + lengths[i]), needs[i] != 0));
    next += lengths[i];
  }
  return vars;
}

// Two operations that the student's file does not have, recorded with lab03::record: mix has three
// inputs, two of them the same variable, and a rule that holds numbers; outer's result is longer
// than its inputs.
Var mix(const Var& a, const Var& b) {
  if (lab03::value(a).size() != lab03::value(b).size()) throw std::invalid_argument("mix: lengths");
  const std::vector<double> factors{3, 5, 2};
  Values y;
  for (std::size_t i = 0; i < lab03::value(a).size(); ++i)
    y.push_back((factors[0] + factors[2]) * lab03::value(a)[i] + factors[1] * lab03::value(b)[i]);
  return lab03::record(
      std::move(y), {a, b, a},
      [factors](const std::vector<Var>& inputs, std::size_t input, const Values& grad) {
        if (inputs.size() != 3) throw kit::Misuse{"a rule must get all inputs of its operation"};
        Values out = grad;
        for (double& g : out) g *= factors.at(input);
        return out;
      });
}
Var outer(const Var& a, const Var& b) {  // y[i, j] = a[i] b[j], row by row
  Values y;
  for (const double p : lab03::value(a))
    for (const double q : lab03::value(b)) y.push_back(p * q);
  return lab03::record(
      std::move(y), {a, b}, [](const auto& inputs, std::size_t input, const Values& grad) {
        const Values &x = lab03::value(inputs.at(0)), &z = lab03::value(inputs.at(1));
        Values out(input == 0 ? x.size() : z.size());
        for (std::size_t i = 0; i < x.size(); ++i)
          for (std::size_t j = 0; j < z.size(); ++j)
            out[input == 0 ? i : j] += grad.at(i * z.size() + j) * (input == 0 ? z[j] : x[i]);
        return out;
      });
}

void compute(const kit::Request& in, std::vector<Var>& vars) {
  const std::vector<std::int64_t> rows = in.integers("operations");
  for (std::size_t at = 0; at + 2 < rows.size(); at += 3) {
    const Var a = vars.at(std::size_t(rows[at + 1])), b = vars.at(std::size_t(rows[at + 2]));
    switch (rows[at]) {
      case 0:
        vars.push_back(lab03::add(a, b));
        break;
      case 1:
        vars.push_back(lab03::mul(a, b));
        break;
      case 2:
        vars.push_back(lab03::sum(a));
        break;
      case 4:
        vars.push_back(mix(a, b));
        break;
      case 5:
        vars.push_back(outer(a, b));
        break;
      default:
        vars.push_back(lab03::relu(a));
        break;
    }
  }
}

// Records which leaves have a gradient, and all gradients, concatenated.
void put_grads(kit::Observation& out, const std::string& suffix, const std::vector<Var>& vars,
               std::size_t leaves) {
  std::vector<std::int64_t> lengths;  // -1 for a leaf without a gradient
  std::vector<double> flat;
  for (std::size_t i = 0; i < leaves; ++i) {
    const Values* grad = lab03::grad(vars[i]);
    lengths.push_back(grad == nullptr ? -1 : std::int64_t(grad->size()));
    if (grad != nullptr) flat.insert(flat.end(), grad->begin(), grad->end());
  }
  out.put("grad_lengths." + suffix, lengths);
  out.put("grads." + suffix, flat);
}

}  // namespace

namespace {

// Calls what() with about `kib` KiB more on the stack, so that its variables do not reuse the
// addresses of an earlier call's variables.
template <class What>
void deeper(std::size_t kib, const What& what) {
  volatile char below[1024] = {};
  if (kib > 0)
    deeper(kib - 1, what);
  else
    what();
  (void)below[0];  // prevents a tail call
}

}  // namespace

// Reports the values, runs each backward() at a different stack depth, and logs the hooks.
KIT_SCENARIO(program) {
  std::vector<Var> vars = leaves_of(in);
  const std::size_t leaves = vars.size();
  try {
    compute(in, vars);
  } catch (const std::exception& error) {
    out.put("refused", error.what());
    return;
  }
  std::vector<double> flat;
  std::vector<std::int64_t> lengths, needs;
  for (const Var& v : vars) {
    lengths.push_back(std::int64_t(lab03::value(v).size()));
    needs.push_back(lab03::needs_grad(v));
    flat.insert(flat.end(), lab03::value(v).begin(), lab03::value(v).end());
  }
  out.put("values", flat);
  out.put("lengths", lengths);
  out.put("needs", needs);

  std::vector<std::int64_t> log;  // rows of (backward, hook, leaf, whether the handle is the same)
  const std::vector<std::int64_t> hooked = in.integers("hooked"), roots = in.integers("roots");
  const std::vector<std::int64_t> retain = in.integers("retain");
  std::size_t running = 0;
  for (std::size_t h = 0; h < hooked.size(); ++h) {
    const auto i = std::size_t(hooked[h]);
    lab03::on_grad(vars[i], [&, h, i](const Var& leaf) {
      put_grads(out, "hook" + std::to_string(log.size() / 4), vars, leaves);
      log.insert(log.end(), {std::int64_t(running), std::int64_t(h), std::int64_t(i),
                             std::int64_t(leaf == vars[i])});
      if (std::int64_t(h) == in.integer("throwing", -1)) {
        if (in.integer("throws_int", 0) != 0) throw 3;  // not a std::exception
        throw std::range_error("a hook's own");
      }
    });
  }
  for (; running < roots.size(); ++running) {
    const std::string k = std::to_string(running);
    if (roots[running] < 0) {  // resets all gradients instead of a backward
      for (std::size_t i = 0; i < leaves; ++i) lab03::zero_grad(vars[i]);
    } else {
      const char* kind = "";
      try {
        const Var& root = vars.at(std::size_t(roots[running]));
        deeper(2 * running, [&] { lab03::backward(root, retain[running] != 0); });
      } catch (const std::invalid_argument&) {
        kind = "invalid_argument";
      } catch (const std::logic_error&) {
        kind = "logic_error";
      } catch (const std::range_error&) {
        kind = "the hook's own";
      } catch (int) {
        kind = "the hook's own";
      } catch (const std::exception&) {
        kind = "another exception";
      }
      out.put("error." + k, kind);
    }
    put_grads(out, k, vars, leaves);
  }
  out.put("log", log);
}

// Runs task 2 alone. Reports the number of gradients that each variable receives from root.
KIT_SCENARIO(counts) {
  std::vector<Var> vars = leaves_of(in);
  compute(in, vars);
  std::vector<std::int64_t> counts;
  const Var root = vars.at(std::size_t(in.integer("root")));
  for (const Var& v : vars) counts.push_back(lab03::contributions(root, v));
  out.put("counts", counts);
}

// Builds a chain: h = h + w or h = h * w, n times, so that w receives n contributions; or n nested
// sums or relus of w.
KIT_SCENARIO(chain) {
  const Var w = lab03::leaf({1.0});
  const std::int64_t operation = in.integer("operation", 0);
  Var h = operation < 2 ? lab03::leaf({double(operation)}) : w;
  int fired = 0;
  lab03::on_grad(w, [&](const Var&) { ++fired; });
  for (std::int64_t i = in.integer("length"); i > 0; --i)
    h = operation == 0   ? lab03::add(h, w)
        : operation == 1 ? lab03::mul(h, w)
        : operation == 2 ? lab03::sum(h)
                         : lab03::relu(h);
  out.put("value", lab03::value(h).at(0));
  lab03::backward(h);
  const Values* grad = lab03::grad(w);
  out.put("grad", grad == nullptr || grad->size() != 1 ? -1.0 : grad->front());
  out.put("fired", fired);
}

// Builds one graph after another, w + w + ... with lengths[i] additions, each in the memory that
// the one before it has freed. Reports the gradient of w in each, 0 for none; ends with the first
// error.
KIT_SCENARIO(successive) {
  const Var w = lab03::leaf({1.0});
  std::vector<double> grads;
  std::string error;
  for (const std::int64_t length : in.integers("lengths")) {
    if (!error.empty()) break;
    Var h = w;
    for (std::int64_t i = 0; i < length; ++i) h = lab03::add(h, w);
    try {
      lab03::backward(h);
    } catch (const std::exception& e) {
      error = std::string("an exception: ") + e.what();
    }
    const Values* grad = lab03::grad(w);
    grads.push_back(grad == nullptr || grad->empty() ? 0 : grad->front());
    lab03::zero_grad(w);
  }
  out.put("grads", grads);
  out.put("error", error);
}

// Runs a small training loop with long vectors, and records the bytes allocated after each step.
KIT_SCENARIO(memory) {
  const auto size = std::size_t(in.integer("size"));
  const Var w = lab03::leaf(Values(size, 1.0)), unused = lab03::leaf(Values(size, 1.0));
  std::vector<double> allocated;
  for (std::int64_t step = in.integer("steps"); step > 0; --step) {
    {
      Var h = lab03::leaf(Values(size, 2.0), false);
      for (int layer = 0; layer < 4; ++layer) h = lab03::relu(lab03::mul(h, lab03::add(w, unused)));
      const Var loss = lab03::sum(h);
      if (step % 2 == 0) lab03::backward(loss);
      lab03::zero_grad(w);
      lab03::zero_grad(unused);
    }
    const auto now = mallinfo2();
    allocated.push_back(double(now.uordblks) + double(now.hblkhd));
  }
  out.put("allocated", allocated);
}
