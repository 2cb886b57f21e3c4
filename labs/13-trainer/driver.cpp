// Runs the parts of the student's trainer in one process.
#include LAB13_TRAINER

#include <stdexcept>

#include "labs/13-trainer/requests.hpp"

// Task 1. Multiplies views as matrices. `how` is a set of bits: a is transposed (1), b is
// transposed (2), a is a range of columns (4) or b every second row (8) of a larger tensor.
KIT_SCENARIO(product) {
  const std::int64_t rows = in.integer("rows"), inner = in.integer("inner"),
                     cols = in.integer("cols"), how = in.integer("how");
  const std::vector<double> a = in.numbers("a"), b = in.numbers("b");
  const auto view = [](std::vector<double> numbers, std::int64_t m, std::int64_t n, bool transposed,
                       bool columns, bool strided) {
    numbers.resize(std::size_t(m * n));
    lab01::Tensor t = lab13::tensor_of(numbers, {m, n});
    if (transposed) {  // stored transposed, viewed as before
      lab01::Tensor other = lab01::Tensor::empty({n, m});
      other.copy_(t.transpose(0, 1));
      t = other.transpose(0, 1);
    }
    if (columns || strided) {
      lab01::Tensor wide = lab01::Tensor::empty({strided ? 2 * m : m, n + 2});
      wide.fill_(1e30);  // a read outside the view changes the result
      lab01::Tensor part = wide.slice(1, 1, n + 1).slice(0, 0, 2 * m, strided ? 2 : 1);
      part.copy_(t);
      t = part;
    }
    return t;
  };
  const lab01::Tensor left = view(a, rows, inner, (how & 1) != 0, (how & 4) != 0, false),
                      right = view(b, inner, cols, (how & 2) != 0, false, (how & 8) != 0);
  const lab01::Tensor c = lab13::matmul(left, right);
  out.put("sizes", c.sizes());
  out.put("c", lab13::numbers_of(c));
  try {
    (void)lab13::matmul(left, lab01::Tensor::empty({inner + 1, cols}));
    out.put("refused", 0);
  } catch (const std::invalid_argument&) {
    out.put("refused", 1);
  }
}

// Task 2. Runs one operation, and computes all inputs' gradients for a given gradient of the
// result.
KIT_SCENARIO(operation) {
  std::vector<lab03::Var> leaves;
  for (const char* name : {"x", "weight", "bias"})
    if (in.has(name)) leaves.push_back(lab03::leaf(in.numbers(name)));
  const std::int64_t rows = in.integer("rows");
  const lab03::Var y = leaves.size() == 1 ? lab13::log_softmax(leaves[0], rows)
                                          : lab13::linear(leaves[0], leaves[1], leaves[2], rows);
  out.put("y", lab03::value(y));
  if (in.has("then_rows"))  // the same numbers in rows of a different length
    out.put("then_y", lab03::value(lab13::log_softmax(lab03::leaf(in.numbers("x")),
                                                      in.integer("then_rows"))));
  lab03::backward(lab03::sum(lab03::mul(y, lab03::leaf(in.numbers("dy"), false))));
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const lab03::Values* grad = lab03::grad(leaves[i]);
    out.put("grad." + std::to_string(i), grad == nullptr ? lab03::Values{} : *grad);
  }
}

// Task 3. Passes one batch through a model, `repeats` times. Logs which hook ran (p, or -1 and -2
// for the two end-of-backward callbacks) and the gradients at that time. Finally passes the batch's
// first `then_rows` rows alone.
KIT_SCENARIO(learn) {
  lab13::Model model(widths_of(in));
  prepare(in, model, 0);
  const lab13::Data data = data_of(in);
  std::vector<std::int64_t> log;
  const auto note = [&](std::int64_t what) {
    out.put("at." + std::to_string(log.size()), values_of(model.parameters(), true));
    log.push_back(what);
  };
  for (std::size_t p = 0; p < model.parameters().size(); ++p)
    model.on_gradient(model.parameters()[p], [&, p] { note(std::int64_t(p)); });
  model.on_backward_end([&] { note(-1); });
  model.on_backward_end([&] { note(-2); });
  std::vector<double> losses;
  for (std::int64_t i = in.integer("repeats"); i > 0; --i)
    losses.push_back(model.learn(data.x, data.targets));
  out.put("losses", losses);
  out.put("log", log);
  out.put("grads", values_of(model.parameters(), true));
  out.put("values", values_of(model.parameters()));
  if (!in.has("then_rows")) return;
  const std::size_t rows = size(in, "then_rows");
  std::vector<float> x = in.floats("x");
  x.resize(rows * data.x.cols);
  lab13::Targets targets = data.targets;
  targets.resize(rows);
  for (Parameter* p : model.parameters()) std::fill(p->grad.begin(), p->grad.end(), 0.0F);
  out.put("then_loss", model.learn(matrix(x, data.x.cols), targets));
  out.put("then_grads", values_of(model.parameters(), true));
}

// Stage 1. Runs lab 04's own train_step on the batches that the judge names.
KIT_SCENARIO(lab04_alone) {
  lab04::MLP model(widths_of(in));
  prepare(in, model, 0);
  const lab13::Data data = data_of(in);
  const std::vector<std::int64_t> order = in.integers("order");
  const std::size_t rows = size(in, "batch");
  std::vector<double> losses;
  with_optimizer(in, model.parameters(), [&](auto& optimizer) {
    for (std::size_t first = 0; first < order.size(); first += rows) {
      Matrix x(rows, data.x.cols);
      std::vector<std::int64_t> targets;
      for (std::size_t r = 0; r < rows; ++r) {
        const auto sample = std::size_t(order[first + r]);
        for (std::size_t c = 0; c < x.cols; ++c) x(r, c) = data.x(sample, c);
        targets.push_back(data.targets[sample]);
      }
      losses.push_back(double(lab04::train_step(model, optimizer, x, targets)));
    }
  });
  out.put("losses", losses);
  out.put("values", values_of(model.parameters()));
}

namespace {

struct LeftRing {  // a correct ring in the opposite direction
  static int mod(int i, int world) { return (i % world + world) % world; }
  static lab06::Step reduce_scatter_step(int world, int rank, int step) {
    return {mod(rank - 1, world), mod(rank + 1 + step, world), mod(rank + 1, world),
            mod(rank + 2 + step, world)};
  }
  static lab06::Step all_gather_step(int world, int rank, int step) {
    return {mod(rank - 1, world), mod(rank + step, world), mod(rank + 1, world),
            mod(rank + 1 + step, world)};
  }
};

}  // namespace

// Runs task 5 alone. Reports rank, to, send_chunk, from, recv_chunk and adds of each step, rank by
// rank.
KIT_SCENARIO(schedule) {
  for (const bool own : {true, false}) {
    const int world = int(in.integer("world"));
    const kit::Schedule schedule =
        own ? lab13::schedule_of<lab13::OwnRing>(world) : lab13::schedule_of<LeftRing>(world);
    std::vector<std::int64_t> rows;
    for (std::size_t rank = 0; rank < schedule.steps.size(); ++rank)
      for (const kit::ScheduleStep& s : schedule.steps[rank])
        rows.insert(rows.end(), {std::int64_t(rank), s.to, s.send_chunk, s.from, s.recv_chunk,
                                 std::int64_t(s.adds)});
    out.put(own ? "own" : "other", rows);
    out.put(own ? "own_shape" : "other_shape",
            std::vector<std::int64_t>{schedule.world, schedule.chunks,
                                      std::int64_t(schedule.steps.size())});
    out.put(own ? "own_fault" : "other_fault", kit::fault_of(schedule));
  }
}

// Reports the student's ring as text, for programs of the runtime.
KIT_SCENARIO(schedule_text) {
  out.put("text", kit::text_of(lab13::schedule_of<lab13::OwnRing>(int(in.integer("world")))));
}

// Runs task 7 alone, twice.
KIT_SCENARIO(prediction) {
  const std::vector<double> ready = in.numbers("ready");
  std::vector<std::size_t> elements;
  for (const std::int64_t n : in.integers("elements")) elements.push_back(std::size_t(n));
  for (const char* name : {"end", "again"})
    out.put(name, lab13::predicted_end({in.number("alpha"), in.number("beta"), in.number("gamma")},
                                       int(in.integer("world")), ready, elements));
}
