// Runs the student's trainer on real processes.
#include LAB13_TRAINER
#include LAB06_MAILBOX

#include "labs/kit/processes.hpp"

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "labs/13-trainer/requests.hpp"
#include "labs/kit/slow_link.hpp"

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
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

lab13::Settings settings_of(const kit::Request& in) {
  return {in.integer("batch"), in.integer("steps"), std::uint64_t(in.integer("sampler_seed")),
          size(in, "bucket_bytes"), in.integer("save_every", 0)};
}

kit::ProcessOptions processes_of(const kit::Request& in) {
  kit::ProcessOptions options;
  options.world = int(in.integer("world"));
  options.bytes = lab06::SharedLink::bytes(options.world);
  options.seed = std::uint64_t(in.integer("seed", 1));
  return options;
}

// The student's ring (kind -1) and rings of the judge, some wrong and some correct. All kinds sum
// with the student's own all_reduce, so training with a wrong ring would still succeed.
int ring_kind = -1;
int mod(int i, int world) { return (i % world + world) % world; }
struct AnyRing {
  static lab06::Step reduce_scatter_step(int world, int rank, int step) {
    if (ring_kind < 0) return lab13::OwnRing::reduce_scatter_step(world, rank, step);
    const int to = mod(rank + 1, world), from = mod(rank - 1, world);
    switch (ring_kind) {
      case 1:  // each rank sends its own chunk in every step
        return {to, rank, from, mod(rank - 1, world)};
      case 2:  // sender and receiver disagree about the chunk
        return {to, mod(rank - 1 - step, world), from, mod(rank - 3 - step, world)};
      case 3: {  // a mask instead of a remainder: correct only if world is a power of two
        const int mask = world - 1;
        return {(rank + 1) & mask, (rank - 1 - step) & mask, (rank - 1) & mask,
                (rank - 2 - step) & mask};
      }
      case 4:  // sends to the right and waits for the right
        return {to, mod(rank - 1 - step, world), to, mod(rank - 2 - step, world)};
      case 5:  // a rank that does not exist
        return {rank + 1, mod(rank - 1 - step, world), from, mod(rank - 2 - step, world)};
      case 6:  // correct: the opposite direction
        return {from, mod(rank + 1 + step, world), to, mod(rank + 2 + step, world)};
      default:
        return {to, mod(rank - 1 - step, world), from, mod(rank - 2 - step, world)};
    }
  }
  static lab06::Step all_gather_step(int world, int rank, int step) {
    if (ring_kind < 0) return lab13::OwnRing::all_gather_step(world, rank, step);
    const int to = mod(rank + 1, world), from = mod(rank - 1, world);
    if (ring_kind == 6) return {from, mod(rank + step, world), to, mod(rank + 1 + step, world)};
    if (ring_kind == 7)  // starts with a chunk that is not complete yet
      return {to, mod(rank - 1 - step, world), from, mod(rank - 2 - step, world)};
    if (ring_kind == 8)  // sends the same chunk in every step
      return {to, rank, from, from};
    return {to, mod(rank - step, world), from, mod(rank - 1 - step, world)};
  }
  template <class Link>
  static void all_reduce(Link& link, std::span<float> data) {
    lab13::OwnRing::all_reduce(link, data);
  }
};

// All training runs use one type of link, model, optimizer and log: each combination of types would
// be another instance of train() to compile, and a student waits for the compiler.
using Link = kit::SlowLink<lab06::SharedLink>;
using Log = std::function<void(std::int64_t, double)>;
class AnyOptimizer {  // lab 04's, of the requested kind; records when step() begins
 public:
  AnyOptimizer(const kit::Request& in, const std::vector<Parameter*>& parameters)
      : parameters_(parameters) {
    with_optimizer(in, parameters, [&](auto& one) {
      using Kind = std::decay_t<decltype(one)>;
      const auto held = std::make_shared<Kind>(std::move(one));
      step_ = [held] { held->step(); };
      state_ = [held] { return held->state(); };
      load_ = [held](const std::vector<double>& state) { held->load(state); };
    });
  }
  [[nodiscard]] const std::vector<Parameter*>& parameters() const { return parameters_; }
  void step() {
    called = Clock::now();
    step_();
  }
  [[nodiscard]] std::vector<double> state() const { return state_(); }
  void load(const std::vector<double>& state) { load_(state); }
  Clock::time_point called = {};

 private:
  std::vector<Parameter*> parameters_;
  std::function<void()> step_;
  std::function<std::vector<double>()> state_;
  std::function<void(const std::vector<double>&)> load_;
};

class AnyModel {  // lab 13's or lab 04's; counts the samples that the rank computes
 public:
  explicit AnyModel(const kit::Request& in) {
    in.text("model", "own") == "lab 04's" ? hold<lab13::ByHand>(in) : hold<lab13::Model>(in);
  }
  [[nodiscard]] std::vector<Parameter*> parameters() const { return parameters_(); }
  void on_gradient(Parameter* p, std::function<void()> hook) { on_gradient_(p, std::move(hook)); }
  void on_backward_end(std::function<void()> callback) { on_end_(std::move(callback)); }
  double learn(const Matrix& x, const lab13::Targets& targets) {
    samples += x.rows;
    return learn_(x, targets);
  }
  std::size_t samples = 0;

 private:
  template <class Kind>
  void hold(const kit::Request& in) {
    const auto held = std::make_shared<Kind>(widths_of(in));
    parameters_ = [held] { return held->parameters(); };
    on_gradient_ = [held](Parameter* p, auto hook) { held->on_gradient(p, std::move(hook)); };
    on_end_ = [held](auto callback) { held->on_backward_end(std::move(callback)); };
    learn_ = [held](const Matrix& x, const auto& targets) { return held->learn(x, targets); };
  }
  std::function<std::vector<Parameter*>()> parameters_;
  std::function<void(Parameter*, std::function<void()>)> on_gradient_;
  std::function<void(std::function<void()>)> on_end_;
  std::function<double(const Matrix&, const lab13::Targets&)> learn_;
};

// Runs a short job in the same processes before the observed one, with one sample fewer, another
// batch and another seed.
void train_before(const kit::Request& in, Link& link) {
  AnyModel model(in);
  prepare(in, model, link.rank());
  lab13::Data data = data_of(in);
  std::vector<float> x = in.floats("x");
  x.resize(x.size() - data.x.cols);
  data.x = matrix(x, data.x.cols);
  data.targets.pop_back();
  AnyOptimizer optimizer(in, model.parameters());
  lab13::Settings settings = settings_of(in);
  settings.batch = in.integer("first_batch");
  settings.steps = 3;
  ++settings.seed;
  kit::Vault vault(std::size_t{1} << 10);
  const Log log = [](auto, auto) {};  // the same type as in train_one: one instance of train()
  lab13::train<AnyRing>(link, model, optimizer, data, settings, vault, log);
}

// Runs one rank of a training run. Reports the log's arguments and a hash of the parameters after
// each step.
void train_one(const kit::Request& in, Link& link, kit::Vault& vault, kit::Observation& seen) {
  if (in.has("first_batch")) train_before(in, link);
  AnyModel model(in);
  prepare(in, model, link.rank());
  const lab13::Data data = data_of(in);
  std::vector<std::int64_t> steps, hashes;
  std::vector<double> losses;
  AnyOptimizer optimizer(in, model.parameters());
  const Log log = [&](std::int64_t step, double loss) {
    steps.push_back(step);
    losses.push_back(loss);
    hashes.push_back(hash_of(values_of(model.parameters())));
  };
  const auto all = [&] { return std::pair(values_of(model.parameters()), optimizer.state()); };
  const auto before = all();
  try {
    lab13::train<AnyRing>(link, model, optimizer, data, settings_of(in), vault, log);
  } catch (const std::invalid_argument&) {
    seen.put("changed", int(all() != before));
    throw;
  }
  seen.put("messages", link.messages());
  seen.put("samples", model.samples);
  seen.put("steps", steps);
  seen.put("losses", losses);
  seen.put("hashes", hashes);
  seen.put("end_hash", hash_of(values_of(model.parameters())));
  seen.put("values", values_of(model.parameters()));
}

void train_all(const kit::Request& in, const kit::ProcessOptions& options, kit::Vault& vault,
               kit::Observation& out) {
  kit::Processes processes(options);
  processes.run(
      [&](kit::Member& self, kit::Observation& seen) {
        kit::begin_operation("train");
        lab06::SharedLink fast(self);
        Link link(fast, 0, 0);
        train_one(in, link, vault, seen);
      },
      out);
}

// Runs an earlier job of `before` steps, which leaves its checkpoint in the vault.
void train_first(const kit::Request& in, kit::Vault& vault) {
  kit::Request first = in;
  first.put("steps", in.integer("before"));
  first.put("world", in.integer("world_before", in.integer("world")));
  first.put("batch", in.integer("batch_before", in.integer("batch")));
  kit::Observation ignored;
  train_all(first, processes_of(first), vault, ignored);
}

// The same link with renumbered ranks: rank r of the link has the number (r - by) modulo the world.
class Turned {
 public:
  Turned(Link& link, int by) : link_(link), by_(by) {}
  [[nodiscard]] int rank() const { return turned(link_.rank(), -by_); }
  [[nodiscard]] int world() const { return link_.world(); }
  template <class T>
  void send(int to, std::span<T> data) {
    link_.send(turned(to, by_), data);
  }
  template <class T>
  void recv(int from, std::span<T> data) {
    link_.recv(turned(from, by_), data);
  }
  template <class T, class U>
  void exchange(int to, std::span<T> out, int from, std::span<U> in) {
    link_.exchange(turned(to, by_), out, turned(from, by_), in);
  }

 private:
  [[nodiscard]] int turned(int rank, int by) const { return mod(rank + by, world()); }
  Link& link_;
  int by_;
};

}  // namespace

// Runs task 4 alone. Starts an all-reduce, broadcasts from each rank in turn, and waits for the
// sum. Repeats this in a second group with other rank numbers.
KIT_SCENARIO(group) {
  kit::Processes processes(processes_of(in));
  processes.run(
      [&](kit::Member& self, kit::Observation& seen) {
        kit::begin_operation("all_reduce, broadcast");
        lab06::SharedLink fast(self);
        Link link(fast, 0, 0);
        std::vector<float> sums, copies;
        for (const int by : {0, 1}) {
          Turned turned(link, by);
          kit::Background thread;
          lab13::RingGroup<AnyRing, Turned> group(turned, thread);
          const std::vector<float> own = in.floats("data." + std::to_string(turned.rank()));
          std::vector<float> sum(size(in, "count"));
          for (std::size_t i = 0; i < sum.size(); ++i)
            sum[i] = float(i + 1) * float(turned.rank() + 1);
          kit::Background::Work work = group.all_reduce(sum);
          for (int root = 0; root < turned.world(); ++root) {
            std::vector<float> data = own;
            group.broadcast(data, root);
            copies.insert(copies.end(), data.begin(), data.end());
          }
          work.wait();
          sums.insert(sums.end(), sum.begin(), sum.end());
        }
        seen.put("sums", sums);
        seen.put("copies", copies);
      },
      out);
}

// Trains on real processes. first_batch: batch of a short job that runs first in these processes.
// before: number of steps of an earlier job with the same vault. kill_rank, kill_after: of a job
// that is killed before the last one starts. then_save_every: save_every of the last job.
KIT_SCENARIO(train) {
  kit::Vault vault(std::size_t{1} << 18);
  kit::ProcessOptions options = processes_of(in);
  std::int64_t killed = 0;
  if (in.has("before")) train_first(in, vault);
  if (in.has("kill_rank")) {
    kit::ProcessOptions deadly = options;
    deadly.kill_rank = int(in.integer("kill_rank"));
    deadly.kill_after = std::uint64_t(in.integer("kill_after"));
    try {
      kit::Observation ignored;
      train_all(in, deadly, vault, ignored);
    } catch (const kit::Killed&) {
      killed = 1;
    }
  }
  out.put("killed", killed);
  out.put("saves", vault.saves());
  kit::Request last = in;
  if (vault.saves() > 0) {  // then the new model's values, frozen ones among them, must not matter
    std::vector<float> others = in.floats("values");
    for (float& value : others) value += 1.0F;
    last.put("values", others);
  }
  last.put("save_every", in.integer("then_save_every", in.integer("save_every", 0)));
  train_all(last, options, vault, out);
}

// Reports whether train() refuses a ring or settings, how often it used the link until then, and
// whether the model or the optimizer has changed.
KIT_SCENARIO(refused) {
  kit::Vault vault(std::size_t{1} << 18);
  if (in.has("before")) train_first(in, vault);
  ring_kind = int(in.integer("ring"));
  kit::Processes processes(processes_of(in));
  processes.run(
      [&](kit::Member& self, kit::Observation& seen) {
        kit::begin_operation("train");
        lab06::SharedLink fast(self);
        Link link(fast, 0, 0);
        std::string why;
        kit::Observation inner;
        try {
          train_one(in, link, vault, inner);
        } catch (const std::invalid_argument& refusal) {
          why = std::string("refused ") + refusal.what();
        }
        seen.put("why", why);
        seen.put("messages", link.messages());
        seen.put("changed", why.empty() ? 0 : inner.integer("changed"));
        seen.put("trained", why.empty() ? std::int64_t(inner.integers("steps").size()) : 0);
      },
      out);
}

namespace {

// Measures alpha and beta of a link: exchanges messages of several lengths with the neighbours, and
// calls lab 05's fit with the fastest of five times for each length.
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
      if (turn > 0)
        least = std::min(least, seconds_since(begin));  // the first exchange synchronizes the ranks
    }
    samples.push_back({double(count * sizeof(float)), least});
  }
  return lab05::fit(samples);
}

}  // namespace

// Trains over a slow link, with a backward that sleeps `seconds` before each parameter's gradient.
// Measures the time from the last gradient to the optimizer's step (exposed), and from the first
// gradient to that step without the sleep. Also reports the student's prediction.
KIT_SCENARIO(overlap) {
  const double seconds = in.number("seconds");
  kit::Vault vault(std::size_t{1} << 18);
  kit::Processes processes(processes_of(in));
  processes.run(
      [&](kit::Member& self, kit::Observation& seen) {
        kit::begin_operation("train");
        lab06::SharedLink fast(self);
        Link link(fast, in.number("alpha"), in.number("beta"));
        const lab05::Machine machine = measured(link);
        AnyModel model(in);
        prepare(in, model, link.rank());
        const lab13::Data data = data_of(in);
        // The buckets in the order of backward, the last parameter first.
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
        // Lab 09 also exchanges which parameters had a gradient.
        ready.push_back(seconds * double(parameters.size()));
        elements.push_back(parameters.size());
        seen.put("predicted",
                 lab13::predicted_end(machine, link.world(), ready, elements) - ready.back());
        seen.put("machine", std::vector<double>{machine.alpha, machine.beta});

        // exposed: from the last gradient to the optimizer's step. beside: from the first gradient
        // to the optimizer's step, minus the time slept.
        std::vector<double> exposed, beside;
        Clock::time_point last;
        std::optional<Clock::time_point> first;
        double slept = 0;                // measured, because sleeps are longer under load
        double late = 0;                 // the longest of them, beyond its time
        for (Parameter* p : parameters)  // before lab 09's hooks, which train() registers
          model.on_gradient(p, [&] {
            const Clock::time_point begin = Clock::now();
            if (!first) first = begin;
            std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
            last = Clock::now();
            slept += seconds_since(begin);
            late = std::max(late, seconds_since(begin) - seconds);
          });
        AnyOptimizer optimizer(in, parameters);
        const Log log = [&](std::int64_t, double) {
          exposed.push_back(std::chrono::duration<double>(optimizer.called - last).count());
          beside.push_back(std::chrono::duration<double>(optimizer.called - *first).count() -
                           slept);
          first.reset();
          slept = 0;
        };
        lab13::train<AnyRing>(link, model, optimizer, data, settings_of(in), vault, log);
        seen.put("exposed", exposed);
        seen.put("beside", beside);
        seen.put("late", late);
        seen.put("values", values_of(parameters));
      },
      out);
}
