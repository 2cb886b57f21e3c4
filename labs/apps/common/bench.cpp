#include "labs/apps/common/bench.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <vector>

#include "labs/apps/common/losses.hpp"
#include "runtime/base/tracer.hpp"

namespace ringsmith::apps {

namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  if (n == 0) return 0;
  return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

// When the device has done what it was given.
double now_ms(Device device) {
  synchronize(device);
  return static_cast<double>(trace::now_ns()) / 1e6;
}

// The slowest rank of each column.
std::vector<double> slowest(comm::ProcessGroup& group, const std::vector<double>& mine) {
  std::vector<double> out = mine;
  for (const auto& row : gather_rows(group, mine))
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::max(out[i], row[i]);
  return out;
}

}  // namespace

std::string bench(comm::ProcessGroup& group, const BenchRecipe& recipe) {
  const bool many = group.size() > 1;
  std::vector<double> forward, backward, update, step, alone;
  double first = 0, last = 0;
  for (std::int64_t i = 0; i < recipe.warmup + recipe.steps; ++i) {
    recipe.fetch(i);
    const double t0 = now_ms(recipe.device);
    recipe.zero_grad();
    Tensor loss = recipe.forward();
    const double t1 = now_ms(recipe.device);
    loss.backward();
    const double t2 = now_ms(recipe.device);
    recipe.update();
    const double t3 = now_ms(recipe.device);
    last = loss.item<float>();
    if (i == 0) first = last;
    const bool counts = i >= recipe.warmup;
    if (counts) {
      forward.push_back(t1 - t0);
      backward.push_back(t2 - t1);
      update.push_back(t3 - t2);
      step.push_back(t3 - t0);
    }
    if (many)
      recipe.without_sync([&] {
        loss = recipe.forward();
        const double t4 = now_ms(recipe.device);
        loss.backward();
        if (counts) alone.push_back(now_ms(recipe.device) - t4);
      });
  }
  const auto ms = slowest(
      group, {median(forward), median(backward), median(update), median(step), median(alone)});
  const double rate = recipe.units_per_rank_step * group.size() / ms[3] * 1e3;
  std::string line = fmt::format(
      "{}: procs {} threads {} batch/proc {} params {} ({:.2f} MiB) | {:.0f} {}/s | ms/step {:.2f} "
      "= fwd {:.2f} + bwd {:.2f} + opt {:.2f}",
      recipe.name, group.size(), recipe.threads, recipe.batch, recipe.parameters,
      static_cast<double>(recipe.parameters) * 4 / (1 << 20), rate, recipe.unit, ms[3], ms[0],
      ms[1], ms[2]);
  if (many) line += fmt::format(" | bwd without comm {:.2f}", ms[4]);
  return line + fmt::format(" | loss {:.4f} -> {:.4f}", first, last);
}

}  // namespace ringsmith::apps
