// Runs the student's layers, loss, optimizers and training step.
#include LAB04_LAYERS
#include LAB04_LOSS
#include LAB04_OPTIM
#include LAB04_TRAIN

#include "labs/kit/driver.hpp"

#include <algorithm>
#include <exception>
#include <stdexcept>

using lab04::Matrix;
using lab04::Parameter;

namespace {

Matrix matrix(const kit::Request& in, const char* name, std::size_t rows, std::size_t cols) {
  Matrix m(rows, cols);
  const std::vector<float> data = in.floats(name);
  std::copy_n(data.begin(), rows * cols, m.data.begin());  // an empty matrix is sent as one number
  return m;
}

std::size_t size(const kit::Request& in, const char* name) { return std::size_t(in.integer(name)); }

std::vector<float> values_of(const std::vector<Parameter*>& parameters, bool grads = false) {
  std::vector<float> all;
  for (const Parameter* p : parameters) {
    const std::vector<float>& one = grads ? p->grad : p->value;
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

void set_values(const std::vector<Parameter*>& parameters, const std::vector<float>& all) {
  std::size_t at = 0;
  for (Parameter* p : parameters)
    for (float& v : p->value) v = all.at(at++);
}

lab04::SgdOptions sgd_options(const kit::Request& in) {
  return {in.number("lr"), in.number("momentum", 0), in.number("dampening", 0),
          in.number("weight_decay", 0)};
}

lab04::AdamWOptions adamw_options(const kit::Request& in) {
  return {in.number("lr"), in.number("beta1", 0.9), in.number("beta2", 0.999),
          in.number("eps", 1e-8), in.number("weight_decay", 0.01)};
}

// Calls use(optimizer) with the optimizer that the judge names. Before that, a second optimizer
// with other options takes a step on a separate parameter, which must have no effect.
template <class Use>
void with_optimizer(const kit::Request& in, const std::vector<Parameter*>& parameters, Use use) {
  Parameter elsewhere(2);
  const auto both = [&](auto neighbour, auto optimizer) {
    neighbour.step();
    neighbour.load(neighbour.state());
    use(optimizer);
  };
  if (in.text("optimizer") == "sgd")
    both(lab04::Sgd({&elsewhere}, {0.5, 0.25, 0.125, 0.0625}),
         lab04::Sgd(parameters, sgd_options(in)));
  else
    both(lab04::AdamW({&elsewhere}, {0.5, 0.25, 0.125, 0.0625, 0.75}),
         lab04::AdamW(parameters, adamw_options(in)));
}

std::vector<std::size_t> widths(const kit::Request& in) {
  const std::vector<std::int64_t> given = in.integers("widths");
  return {given.begin(), given.end()};
}

}  // namespace

KIT_SCENARIO(linear) {
  const std::size_t rows = size(in, "rows"), ins = size(in, "in"), outs = size(in, "out");
  lab04::Linear layer(ins, outs);
  layer.weight.value = in.floats("weight");
  layer.bias.value = in.floats("bias");
  const Matrix x = matrix(in, "x", rows, ins), dy = matrix(in, "dy", rows, outs);
  Matrix y, dx;
  (void)layer.forward(Matrix(rows + 2, ins));  // a forward() without a backward()
  for (std::int64_t i = in.integer("repeats"); i > 0; --i) {
    y = layer.forward(x);
    dx = layer.backward(dy);
  }
  out.put("y", y.data);
  out.put("dx", dx.data);
  out.put("shapes", std::vector<std::int64_t>{std::int64_t(y.rows), std::int64_t(y.cols),
                                              std::int64_t(dx.rows), std::int64_t(dx.cols)});
  out.put("dweight", layer.weight.grad);
  out.put("dbias", layer.bias.grad);
}

KIT_SCENARIO(relu) {
  const std::vector<float> x = in.floats("x");
  lab04::ReLU layer;
  const Matrix y = layer.forward(matrix(in, "x", 1, x.size()));
  out.put("y", y.data);
  out.put("dx", layer.backward(matrix(in, "dy", 1, x.size())).data);
}

KIT_SCENARIO(mlp) {
  lab04::MLP model(widths(in));
  const std::vector<Parameter*> parameters = model.parameters();
  std::vector<std::int64_t> lengths;
  std::string names;
  for (const Parameter* p : parameters) {
    lengths.push_back(std::int64_t(p->value.size()));
    names += (names.empty() ? "" : " ") + p->name;
  }
  out.put("lengths", lengths);
  out.put("names", names);
  set_values(parameters, in.floats("values"));
  for (const std::int64_t p : in.integers("frozen"))
    parameters.at(std::size_t(p))->requires_grad = false;
  // Logs each hook, and the end of backward as -1, with the gradients that all parameters have at
  // that time.
  std::vector<std::int64_t> log;
  std::int64_t ends = 0;
  const auto note = [&](std::int64_t what) {
    out.put("at." + std::to_string(log.size()), values_of(parameters, true));
    log.push_back(what);
  };
  if (in.integer("hooked", 0) != 0) {
    for (std::size_t p = 0; p < parameters.size(); ++p)
      model.on_gradient(parameters[p], [&, p] { note(std::int64_t(p)); });
    model.on_backward_end([&] { note(-1); });
    model.on_backward_end([&] { ++ends; });
  }
  const std::size_t rows = size(in, "rows");
  for (std::int64_t i = in.integer("repeats", 1); i > 0; --i) {
    out.put("y", model.forward(matrix(in, "x", rows, widths(in).front())).data);
    model.backward(matrix(in, "dy", rows, widths(in).back()));
  }
  out.put("grads", values_of(parameters, true));
  out.put("log", log);
  out.put("ends", ends);
}

KIT_SCENARIO(cross_entropy) {
  try {
    const lab04::Loss loss = lab04::cross_entropy(
        matrix(in, "logits", size(in, "rows"), size(in, "classes")), in.integers("targets"));
    out.put("loss", double(loss.value));
    out.put("grad", loss.grad.data);
  } catch (const std::invalid_argument& error) {
    out.put("refused", error.what());
  }
}

// Takes steps with given gradients and records all values after each step.
KIT_SCENARIO(optimize) {
  std::vector<Parameter> owned;
  for (const std::int64_t length : in.integers("lengths")) owned.emplace_back(std::size_t(length));
  std::vector<Parameter*> parameters;
  for (Parameter& p : owned) parameters.push_back(&p);
  set_values(parameters, in.floats("values"));
  for (const std::int64_t p : in.integers("frozen")) owned.at(std::size_t(p)).requires_grad = false;
  const std::vector<float> grads = in.floats("grads");
  const std::vector<double> lrs = in.numbers("lrs");
  const std::int64_t resume_at =
      in.integer("resume_at", -1);                   // a new optimizer takes over before this step
  const bool refuse = in.integer("refuse", 0) != 0;  // loads an invalid state before each step
  std::vector<float> trajectory;
  std::vector<double> state, earlier;
  std::size_t step = 0;
  const auto last = [&] {  // all values after the last step
    const std::vector<float> first = in.floats("values");
    if (trajectory.empty()) return first;
    return std::vector<float>(trajectory.end() - std::ptrdiff_t(first.size()), trajectory.end());
  };
  const auto steps = [&](auto& optimizer, std::size_t end) {
    for (; step < end; ++step) {
      auto next = grads.begin() + std::ptrdiff_t(step * grads.size() / lrs.size());
      for (Parameter& p : owned)
        for (float& g : p.grad) g = *next++;
      optimizer.set_lr(lrs[step]);
      if (refuse) {  // the state from before the previous step, plus one number
        earlier.push_back(1);
        try {
          optimizer.load(earlier);
        } catch (const std::invalid_argument&) {
        }
        earlier = optimizer.state();
      }
      optimizer.step();
      const std::vector<float> now = values_of(parameters);
      trajectory.insert(trajectory.end(), now.begin(), now.end());
    }
  };
  with_optimizer(in, parameters, [&](auto& optimizer) {
    steps(optimizer, resume_at < 0 ? lrs.size() : std::size_t(resume_at));
    if (resume_at < 0) return;
    state = optimizer.state();
    if (resume_at > 0) optimizer.step();  // must have no effect on the new optimizer
    set_values(parameters, last());
  });
  if (resume_at >= 0)
    with_optimizer(in, parameters, [&](auto& optimizer) {
      if (in.integer("used_before", 0) != 0) {  // the optimizer's earlier steps must not count
        for (Parameter& p : owned) std::fill(p.grad.begin(), p.grad.end(), 3.0F);
        optimizer.step();
        set_values(parameters, last());
      }
      optimizer.load(state);
      // Twice: if load() exchanged values, load(state) and a single round would cancel each other.
      for (int round = 0; round < 2; ++round) optimizer.load(optimizer.state());
      steps(optimizer, lrs.size());
    });
  out.put("trajectory", trajectory);
}

// Reports whether the optimizer refuses a state of other parameters, and which lengths it accepts
// although neither a fresh optimizer nor one after a step has a state of that length.
KIT_SCENARIO(strange_state) {
  std::vector<Parameter> few, many;
  few.emplace_back(3);
  many.emplace_back(3);
  many.emplace_back(4);
  std::vector<double> state;
  const auto pointers = [](std::vector<Parameter>& owned) {
    std::vector<Parameter*> all;
    for (Parameter& p : owned) all.push_back(&p);
    return all;
  };
  std::vector<double> fresh;
  with_optimizer(in, pointers(few), [&](auto& optimizer) {
    fresh = optimizer.state();
    optimizer.step();
    state = optimizer.state();
  });
  const auto refused = [&](std::vector<Parameter>& owned, const std::vector<double>& given) {
    bool was = false;
    with_optimizer(in, pointers(owned), [&](auto& optimizer) {
      try {
        optimizer.load(given);
      } catch (const std::invalid_argument&) {
        was = true;
      }
    });
    return was;
  };
  out.put("of_others", std::int64_t(refused(many, state)));
  std::vector<std::int64_t> accepted;  // lengths of the states that were not refused
  for (std::size_t length = 0; length < state.size() + 3; ++length)
    for (std::vector<double> given : {state, fresh}) {
      given.resize(length);
      if (length != state.size() && length != fresh.size() && !refused(few, given))
        accepted.push_back(std::int64_t(length));
    }
  out.put("accepted", accepted);
}

// Trains over batches of the given sizes. Before that, one sample goes through forward and backward
// without a step, so that training starts with stale gradients.
KIT_SCENARIO(train) {
  lab04::MLP model(widths(in));
  const std::vector<Parameter*> parameters = model.parameters();
  set_values(parameters, in.floats("values"));
  const std::vector<float> x = in.floats("x");
  const std::vector<std::int64_t> targets = in.integers("targets");
  const std::size_t width = widths(in).front();
  Matrix one(1, width);
  std::copy_n(x.begin(), width, one.data.begin());
  model.backward(lab04::cross_entropy(model.forward(one), {targets.at(0)}).grad);
  std::vector<double> losses;
  with_optimizer(in, parameters, [&](auto& optimizer) {
    std::size_t first = 0;
    for (const std::int64_t batch : in.integers("batches")) {
      const auto rows = std::size_t(batch);
      if (first + rows > targets.size()) first = 0;  // the next epoch
      Matrix part(rows, width);
      std::copy_n(x.begin() + std::ptrdiff_t(first * width), rows * width, part.data.begin());
      const auto begin = targets.begin() + std::ptrdiff_t(first);
      losses.push_back(lab04::train_step(
          model, optimizer, part, std::vector<std::int64_t>(begin, begin + std::ptrdiff_t(rows))));
      first += rows;
    }
  });
  out.put("losses", losses);
  out.put("values", values_of(parameters));
}
