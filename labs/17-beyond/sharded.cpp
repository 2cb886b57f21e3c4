// Runs the student's sharded optimizer on the kit's fabric.
#include LAB17_ZERO

#include <cstring>
#include <memory>

#include "labs/17-beyond/on_ranks.hpp"
#include "labs/kit/heap/held.hpp"

using namespace on_ranks;

KIT_SCENARIO(shards) {
  std::vector<std::int64_t> firsts, lengths;
  const int world = int(in.integer("world"));
  for (const std::int64_t count : in.integers("counts"))
    for (int rank = 0; rank < world; ++rank) {
      const lab17::Shard shard = lab17::shard_of(std::size_t(count), world, rank);
      firsts.push_back(std::int64_t(shard.first));
      lengths.push_back(std::int64_t(shard.length));
    }
  out.put("firsts", firsts);
  out.put("lengths", lengths);
}

namespace {

// One optimizer and its parameters.
struct Trained {
  std::vector<std::vector<float>> values, grads;
  std::vector<lab17::Parameter> parameters;
  std::unique_ptr<lab17::ShardedAdamW> optimizer;

  Trained(const kit::Request& in, Group& group, const std::string& name) {
    const std::vector<std::int64_t> sizes = in.integers("sizes" + name),
                                    frozen = in.integers("frozen" + name);
    const std::vector<float> numbers = in.floats("options" + name);
    Tape<float> initial(in.floats("values" + name));
    for (const std::int64_t size : sizes) {
      values.push_back(initial.next(size));
      grads.emplace_back(std::size_t(size), kGuard);
    }
    for (std::size_t p = 0; p < sizes.size(); ++p)
      parameters.push_back({values[p], grads[p], frozen[p] == 0});
    optimizer = std::make_unique<lab17::ShardedAdamW>(
        group, parameters,
        lab17::AdamW{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]});
  }
};

std::vector<float> joined(const std::vector<std::vector<float>>& all) {
  std::vector<float> out;
  for (const std::vector<float>& one : all) append(out, one);
  return out;
}

}  // namespace

// Letters in pairs: the optimizer, A or B, and
//   g  new gradients            r  reduce_gradients     c  clip by the next of `norms`
//   s  step                     S  state                L  load the next of the states
//   v  write the next of `written` to its parameters
KIT_SCENARIO(zero) {
  const std::string script = in.text("script");
  run(in, out, [&](Group& group) {
    const int rank = group.rank();
    std::vector<std::unique_ptr<Trained>> all;
    all.push_back(std::make_unique<Trained>(in, group, "A"));
    if (in.has("sizesB")) all.push_back(std::make_unique<Trained>(in, group, "B"));
    Tape<float> grads(in.floats(of_rank("grads", rank)));
    Tape<double> limits(in.numbers("norms"));
    Tape<std::int64_t> loads(in.integers("loads"));  // steps, number of m, number of v
    Tape<float> loaded(in.floats("loaded")), written(in.floats("written"));
    std::vector<float> values, m, v;
    std::vector<double> norms;
    std::vector<std::int64_t> steps;
    std::string thrown;
    std::int64_t changed = 0;
    for (std::size_t at = 0; at + 1 < script.size(); at += 2) {
      Trained& t = *all[script[at] == 'B'];
      const char deed = script[at + 1];
      if (deed == 'g')
        for (std::size_t p = 0; p < t.grads.size(); ++p)
          std::ranges::copy(grads.next(std::ssize(t.grads[p])), t.grads[p].begin());
      if (deed == 'v')
        for (std::vector<float>& one : t.values)
          std::ranges::copy(written.next(std::ssize(one)), one.begin());
      const std::vector<float> before = joined(t.grads);
      try {
        if (deed == 'r') t.optimizer->reduce_gradients();
        if (deed == 'c') norms.push_back(t.optimizer->clip(limits.next(1)[0]));
        if (deed == 's') t.optimizer->step();
        if (deed == 'S') {
          const lab17::FullState state = t.optimizer->state();
          steps.push_back(state.steps);
          steps.push_back(std::ssize(state.m));
          steps.push_back(std::ssize(state.v));
          append(m, state.m);
          append(v, state.v);
        }
        if (deed == 'L') {
          const std::vector<std::int64_t> shape = loads.next(3);
          lab17::FullState state{shape[0], loaded.next(shape[1]), loaded.next(shape[2])};
          t.optimizer->load(state);
        }
      } catch (const std::invalid_argument&) {
        thrown += "invalid_argument";
      } catch (const std::logic_error&) {
        thrown += "logic_error";
      }
      thrown += ' ';
      const std::vector<float> after = joined(t.grads);
      changed += !before.empty() &&
                 std::memcmp(before.data(), after.data(), before.size() * sizeof(float)) != 0;
      if (deed == 's') append(values, joined(t.values));
    }
    out.put(of_rank("values", rank), values);
    out.put(of_rank("norms", rank), norms);
    out.put(of_rank("m", rank), m);
    out.put(of_rank("v", rank), v);
    out.put(of_rank("steps", rank), steps);
    out.put(of_rank("thrown", rank), thrown);
    out.put(of_rank("changed", rank), changed);
  });
}

// Reports the memory that one optimizer holds, after its constructor and after steps.
KIT_SCENARIO(memory) {
  run(in, out, [&](Group& group) {
    const auto count = std::size_t(in.integer("size")), parts = std::size_t(in.integer("parts"));
    std::vector<float> values(count, 1.0F), grads(count, float(group.rank()));
    std::vector<lab17::Parameter> parameters;
    for (std::size_t p = 0, at = 0; p < parts; ++p) {
      const std::size_t length = count * (p + 1) / parts - at;
      parameters.push_back({std::span(values).subspan(at, length),
                            std::span<const float>(grads).subspan(at, length), true});
      at += length;
    }
    std::vector<std::int64_t> bytes;
    const std::int64_t before = kit::heap_of_thread();
    auto optimizer = std::make_unique<lab17::ShardedAdamW>(group, parameters, lab17::AdamW{});
    bytes.push_back(kit::heap_of_thread() - before);
    for (int step = 0; step < 3; ++step) {
      optimizer->reduce_gradients();
      if (step == 1) (void)optimizer->clip(1.0);
      optimizer->step();
      bytes.push_back(kit::heap_of_thread() - before);
    }
    optimizer.reset();
    out.put(of_rank("bytes", group.rank()), bytes);
    out.put(of_rank("last", group.rank()), std::vector<float>{values.front(), values.back()});
  });
}
