// Runs the student's trainer on real processes and says what came out. No verdicts here.
#include LAB13_TRAINER
#include LAB06_MAILBOX

#include "labs/kit/driver.hpp"

#include <chrono>
#include <cstring>

#include "labs/kit/processes.hpp"
#include "labs/kit/slow_link.hpp"

using lab04::Matrix;
using lab04::Parameter;

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::size_t size(const kit::Request& in, const char* name) { return std::size_t(in.integer(name)); }

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

// Every rank begins with other values: rank 0's are those that count.
template <class AnyModel>
void prepare(const kit::Request& in, AnyModel& model, int rank) {
  const std::vector<float> values = in.floats("values");
  std::size_t at = 0;
  for (Parameter* p : model.parameters())
    for (float& v : p->value) v = values.at(at++) + 0.25F * float(rank);
  for (const std::int64_t p : in.integers("frozen"))
    model.parameters().at(std::size_t(p))->requires_grad = false;
}

std::int64_t hash_of(const std::vector<float>& values) {  // FNV-1a of the bits
  std::uint64_t hash = 1469598103934665603U;
  for (const float v : values) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &v, sizeof bits);
    hash = (hash ^ bits) * 1099511628211U;
  }
  return std::int64_t(hash);
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

lab13::Settings settings_of(const kit::Request& in) {
  return {in.integer("batch"), in.integer("steps"), std::uint64_t(in.integer("sampler_seed")),
          size(in, "bucket_bytes"), in.integer("save_every", 0)};
}

lab13::Data data_of(const kit::Request& in) {
  return {matrix(in.floats("x"), widths_of(in).front()), in.integers("targets")};
}

kit::ProcessOptions processes_of(const kit::Request& in) {
  kit::ProcessOptions options;
  options.world = int(in.integer("world"));
  options.bytes = lab06::SharedLink::bytes(options.world);
  options.seed = std::uint64_t(in.integer("seed", 1));
  return options;
}

// One rank of a training: what the log was told, and the parameters after each step.
template <class Ring, class AnyModel, class Link>
void train_one(const kit::Request& in, Link& link, kit::Vault& vault, kit::Observation& seen) {
  AnyModel model(widths_of(in));
  prepare(in, model, link.rank());
  const lab13::Data data = data_of(in);
  std::vector<std::int64_t> steps, hashes;
  std::vector<double> losses;
  with_optimizer(in, model.parameters(), [&](auto& optimizer) {
    lab13::train<Ring>(link, model, optimizer, data, settings_of(in), vault,
                       [&](std::int64_t step, double loss) {
                         steps.push_back(step);
                         losses.push_back(loss);
                         hashes.push_back(hash_of(values_of(model.parameters())));
                       });
  });
  seen.put("steps", steps);
  seen.put("losses", losses);
  seen.put("hashes", hashes);
  seen.put("values", values_of(model.parameters()));
}

template <class AnyModel>
void train_all(const kit::Request& in, const kit::ProcessOptions& options, kit::Vault& vault,
               kit::Observation& out) {
  kit::Processes processes(options);
  processes.run(
      [&](kit::Member& self, kit::Observation& seen) {
        kit::begin_operation("train");
        lab06::SharedLink link(self);
        train_one<lab13::OwnRing, AnyModel>(in, link, vault, seen);
      },
      out);
}

}  // namespace

// Task 1: a matrix product of views. How: which of the two are transposed (1, 2), columns of a
// larger tensor (4: a is), or rows of it taken every second (8: b is).
KIT_SCENARIO(product) {
  const std::int64_t rows = in.integer("rows"), inner = in.integer("inner"),
                     cols = in.integer("cols"), how = in.integer("how");
  const std::vector<double> a = in.numbers("a"), b = in.numbers("b");
  const auto view = [](std::vector<double> numbers, std::int64_t m, std::int64_t n, bool transposed,
                       bool columns, bool strided) {
    numbers.resize(std::size_t(m * n));
    lab01::Tensor t = lab13::tensor_of(numbers, {m, n});
    if (transposed) {  // laid out the other way round, and seen as it was
      lab01::Tensor other = lab01::Tensor::empty({n, m});
      other.copy_(t.transpose(0, 1));
      t = other.transpose(0, 1);
    }
    if (columns || strided) {
      lab01::Tensor wide = lab01::Tensor::empty({strided ? 2 * m : m, n + 2});
      wide.fill_(1e30);  // whoever reads beside the view sees it
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

// Task 2: one operation, and the gradients of all inputs for a given gradient of the result.
KIT_SCENARIO(operation) {
  std::vector<lab03::Var> leaves;
  for (const char* name : {"x", "weight", "bias"})
    if (in.has(name)) leaves.push_back(lab03::leaf(in.numbers(name)));
  const std::int64_t rows = in.integer("rows");
  const lab03::Var y = leaves.size() == 1 ? lab13::log_softmax(leaves[0], rows)
                                          : lab13::linear(leaves[0], leaves[1], leaves[2], rows);
  out.put("y", lab03::value(y));
  lab03::backward(lab03::sum(lab03::mul(y, lab03::leaf(in.numbers("dy"), false))));
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const lab03::Values* grad = lab03::grad(leaves[i]);
    out.put("grad." + std::to_string(i), grad == nullptr ? lab03::Values{} : *grad);
  }
}

// Task 3: one batch through a model, twice; what each hook saw, and the end (-1).
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
  std::vector<double> losses;
  for (std::int64_t i = in.integer("repeats"); i > 0; --i)
    losses.push_back(model.learn(data.x, data.targets));
  out.put("losses", losses);
  out.put("log", log);
  out.put("grads", values_of(model.parameters(), true));
  out.put("values", values_of(model.parameters()));
}

// Stage 1: lab 04's own train_step on the batches that the judge names, in this process.
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

// A training on real processes. before: how many steps another job has trained with the same vault;
// kill_rank, kill_after: that job ends by kill -9 instead.
KIT_SCENARIO(train) {
  kit::Vault vault(std::size_t{1} << 18);
  kit::ProcessOptions options = processes_of(in);
  const bool by_hand = in.text("model", "own") == "lab 04's";
  const auto run = [&](const kit::Request& request, const kit::ProcessOptions& how,
                       kit::Observation& seen) {
    by_hand ? train_all<lab13::ByHand>(request, how, vault, seen)
            : train_all<lab13::Model>(request, how, vault, seen);
  };
  std::int64_t killed = 0;
  if (in.has("before")) {
    kit::Request first = in;
    first.put("steps", in.integer("before"));
    first.put("world", in.integer("world_before", in.integer("world")));
    kit::Observation ignored;
    run(first, processes_of(first), ignored);
  }
  if (in.has("kill_rank")) {
    kit::ProcessOptions deadly = options;
    deadly.kill_rank = int(in.integer("kill_rank"));
    deadly.kill_after = std::uint64_t(in.integer("kill_after"));
    try {
      kit::Observation ignored;
      run(in, deadly, ignored);
    } catch (const kit::Killed&) {
      killed = 1;
    }
  }
  out.put("killed", killed);
  out.put("saves", vault.saves());
  run(in, options, out);
}

namespace {

// Rings that are wrong, or right in a way of their own, for the schedule; all sums are the
// student's own, so that a training would go well.
int ring_kind = 0;
int mod(int i, int world) { return (i % world + world) % world; }
struct OtherRing {
  static lab06::Step reduce_scatter_step(int world, int rank, int step) {
    const int to = mod(rank + 1, world), from = mod(rank - 1, world);
    switch (ring_kind) {
      case 1:  // everyone passes on its own chunk at every step
        return {to, rank, from, mod(rank - 1, world)};
      case 2:  // sender and receiver mean different chunks
        return {to, mod(rank - 1 - step, world), from, mod(rank - 3 - step, world)};
      case 3: {  // a mask instead of a remainder: right for two ranks and for four
        const int mask = world - 1;
        return {(rank + 1) & mask, (rank - 1 - step) & mask, (rank - 1) & mask,
                (rank - 2 - step) & mask};
      }
      case 4:  // sends to the right and waits for the right
        return {to, mod(rank - 1 - step, world), to, mod(rank - 2 - step, world)};
      case 5:  // a rank that does not exist
        return {rank + 1, mod(rank - 1 - step, world), from, mod(rank - 2 - step, world)};
      case 6:  // right: the other way round
        return {from, mod(rank + 1 + step, world), to, mod(rank + 2 + step, world)};
      default:
        return {to, mod(rank - 1 - step, world), from, mod(rank - 2 - step, world)};
    }
  }
  static lab06::Step all_gather_step(int world, int rank, int step) {
    const int to = mod(rank + 1, world), from = mod(rank - 1, world);
    if (ring_kind == 6) return {from, mod(rank + step, world), to, mod(rank + 1 + step, world)};
    if (ring_kind == 7)  // begins with the chunk that is not complete yet
      return {to, mod(rank - 1 - step, world), from, mod(rank - 2 - step, world)};
    if (ring_kind == 8)  // the same chunk again and again
      return {to, rank, from, from};
    return {to, mod(rank - step, world), from, mod(rank - 1 - step, world)};
  }
  template <class Link>
  static void all_reduce(Link& link, std::span<float> data) {
    lab06::all_reduce<float>(link, std::span<const float>(data), data);
  }
};

}  // namespace

// Whether train refuses a ring, or settings; and what it has done until then.
KIT_SCENARIO(refused) {
  ring_kind = int(in.integer("ring"));
  kit::Vault vault(std::size_t{1} << 18);
  kit::Processes processes(processes_of(in));
  processes.run(
      [&](kit::Member& self, kit::Observation& seen) {
        kit::begin_operation("train");
        lab06::SharedLink fast(self);
        kit::SlowLink<lab06::SharedLink> link(fast, 0, 0);
        std::string why;
        kit::Observation inner;
        try {
          train_one<OtherRing, lab13::Model>(in, link, vault, inner);
        } catch (const std::invalid_argument& refusal) {
          why = std::string("refused ") + refusal.what();
        }
        seen.put("why", why);
        seen.put("messages", link.messages());
        seen.put("trained", why.empty() ? std::int64_t(inner.integers("steps").size()) : 0);
      },
      out);
}

// Task 5 alone: rank, to, send_chunk, from, recv_chunk, adds of every step, rank by rank.
KIT_SCENARIO(schedule) {
  ring_kind = 6;
  for (const bool own : {true, false}) {
    const int world = int(in.integer("world"));
    const kit::Schedule schedule =
        own ? lab13::schedule_of<lab13::OwnRing>(world) : lab13::schedule_of<OtherRing>(world);
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

// Your ring, for programs of the runtime.
KIT_SCENARIO(schedule_text) {
  out.put("text", kit::text_of(lab13::schedule_of<lab13::OwnRing>(int(in.integer("world")))));
}

// Task 7 alone.
KIT_SCENARIO(prediction) {
  const std::vector<double> ready = in.numbers("ready");
  std::vector<std::size_t> elements;
  for (const std::int64_t n : in.integers("elements")) elements.push_back(std::size_t(n));
  out.put("end", lab13::predicted_end({in.number("alpha"), in.number("beta"), in.number("gamma")},
                                      int(in.integer("world")), ready, elements));
}

namespace {

// Notes when its step begins: all gradients are averaged then.
template <class Optimizer>
struct Watched {
  Optimizer& inner;
  Clock::time_point called = {};
  [[nodiscard]] const std::vector<Parameter*>& parameters() const { return inner.parameters(); }
  void step() {
    called = Clock::now();
    inner.step();
  }
  [[nodiscard]] std::vector<double> state() const { return inner.state(); }
  void load(const std::vector<double>& state) { inner.load(state); }
};

// alpha and beta of a link: messages to the right of several lengths, the shortest of several times,
// and lab 05's fit.
template <class Link>
lab05::Machine measured(Link& link) {
  const int world = link.world(), right = (link.rank() + 1) % world,
            left = (link.rank() + world - 1) % world;
  std::vector<lab05::Sample> samples;
  for (const std::size_t count : {1U, 40U, 100U}) {
    std::vector<float> out(count), in(count);
    double least = 1e9;
    for (int turn = 0; turn < 6; ++turn) {
      const Clock::time_point begin = Clock::now();
      link.exchange(right, std::span<float>(out), left, std::span<float>(in));
      if (turn > 0) least = std::min(least, seconds_since(begin));  // then they begin together
    }
    samples.push_back({double(count * sizeof(float)), least});
  }
  return lab05::fit(samples);
}

}  // namespace

// A slow link, and a backward in which each parameter's gradient takes `seconds` more: how long
// after the last gradient is everything averaged, in each step, and what did the student predict?
KIT_SCENARIO(overlap) {
  const double seconds = in.number("seconds");
  kit::Vault vault(std::size_t{1} << 18);
  kit::Processes processes(processes_of(in));
  processes.run(
      [&](kit::Member& self, kit::Observation& seen) {
        kit::begin_operation("train");
        lab06::SharedLink fast(self);
        kit::SlowLink<lab06::SharedLink> link(fast, in.number("alpha"), in.number("beta"));
        const lab05::Machine machine = measured(link);
        lab13::Model model(widths_of(in));
        prepare(in, model, link.rank());
        const lab13::Data data = data_of(in);
        // What the slow gradients are, in the order in which they come: the last parameter first.
        std::vector<std::size_t> bytes;
        const std::vector<Parameter*> parameters = model.parameters();
        for (auto p = parameters.rbegin(); p != parameters.rend(); ++p)
          bytes.push_back((*p)->value.size() * sizeof(float));
        std::vector<double> ready;
        std::vector<std::size_t> elements;
        for (const std::vector<int>& bucket :
             lab09::plan_buckets(bytes, size(in, "bucket_bytes"))) {
          ready.push_back(seconds * double(bucket.back() + 1));
          elements.push_back(0);
          for (const int i : bucket) elements.back() += bytes[std::size_t(i)] / sizeof(float);
        }
        ready.push_back(seconds * double(parameters.size()));  // lab 09: who had a gradient
        elements.push_back(parameters.size());
        seen.put("predicted",
                 lab13::predicted_end(machine, link.world(), ready, elements) - ready.back());
        seen.put("machine", std::vector<double>{machine.alpha, machine.beta});

        std::vector<double> exposed;
        Clock::time_point last;
        for (Parameter* p : parameters)  // before lab 09's hooks, which train() registers
          model.on_gradient(p, [&] {
            std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
            last = Clock::now();
          });
        with_optimizer(in, parameters, [&](auto& inner) {
          Watched<std::decay_t<decltype(inner)>> optimizer{inner};
          lab13::train<lab13::OwnRing>(
              link, model, optimizer, data, settings_of(in), vault, [&](std::int64_t, double) {
                exposed.push_back(std::chrono::duration<double>(optimizer.called - last).count());
              });
        });
        seen.put("exposed", exposed);
        seen.put("values", values_of(parameters));
      },
      out);
}
