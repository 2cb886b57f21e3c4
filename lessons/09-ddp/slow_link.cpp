// slow_link: the gain of overlap on a link on which all gradients take as long as backward. The
// link is a communication hook whose future completes when such a link would have delivered the
// bucket; the sums are real.
#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "kernels/mode.hpp"
#include "lessons/09-ddp/ranks.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/nn/layers.hpp"
#include "runtime/parallel/ddp.hpp"

using namespace ringsmith;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int kLayers = 8, kWidth = 512, kBatch = 128, kSteps = 10, kWarmup = 3;

struct Times {
  double step = 0, backward = 0, exposed = 0;  // medians, ms
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2] * 1e3;
}

// One bucket after the other: e_k = max(r_k, e_(k-1)) + T_k, and a bucket's future ends at e_k.
CommHook link(const Group& group, double seconds_per_element) {
  const auto busy_until = std::make_shared<Clock::time_point>();
  return {"link", [=](const GradBucket& bucket) {
            const std::chrono::duration<double> seconds(seconds_per_element *
                                                        double(bucket.buffer.numel()));
            const auto travel = std::chrono::duration_cast<Clock::duration>(seconds);
            *busy_until = std::max(Clock::now(), *busy_until) + travel;
            const Future sum = all_reduce(group, bucket.buffer, comm::ReduceOp::avg);
            return Future([sum, end = *busy_until] {
              const Tensor result = sum.wait();
              std::this_thread::sleep_until(end);
              return result;
            });
          }};
}

Times train(const Group& group, Overlap overlap, double seconds_per_element) {
  MLP model(std::vector<std::int64_t>(kLayers + 1, kWidth));
  const double mib = kWidth * kWidth * 4.0 / (1 << 20);  // a layer is a bucket
  DistributedDataParallel ddp(model, group,
                              {.bucket_cap_mb = mib, .first_bucket_mb = mib, .overlap = overlap});
  ddp.register_comm_hook(link(group, seconds_per_element));
  const Tensor x = randn({kBatch, kWidth});
  std::vector<double> steps, backwards, exposed;
  for (int i = 0; i < kWarmup + kSteps; ++i) {
    model.zero_grad();
    const auto begin = Clock::now();
    const Tensor loss = mean(ddp.forward(x));
    const auto forward = Clock::now();
    loss.backward();
    if (i < kWarmup) continue;
    steps.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    exposed.push_back(ddp.reducer().statistics().exposed());
    backwards.push_back(std::chrono::duration<double>(Clock::now() - forward).count() -
                        exposed.back());
  }
  return {median(steps), median(backwards), median(exposed)};
}

std::string row(const char* name, const Times& t, double gradients) {
  char text[120];
  std::snprintf(text, sizeof text, "\n%-4s %8.1f %9.1f %10.1f %8.1f %6.0f %%", name, t.step,
                t.backward, gradients, t.exposed, 100 * (1 - t.exposed / gradients));
  return text;
}

}  // namespace

int main() {
  kernels::set_threads(1);  // a core for each rank
  on_ranks(2, [](const Group& group) -> std::string {
    // All gradients take as long on the link as the slower rank's backward.
    const Tensor backward = full({1}, train(group, Overlap::off, 0).backward);
    const double slowest = all_reduce(group, backward, comm::ReduceOp::max).wait().item<float>();
    const double element = slowest / 1e3 / (kLayers * (kWidth + 1) * kWidth);
    const Times off = train(group, Overlap::off, element);
    const Times on = train(group, Overlap::on, element);
    if (group->rank() != 0) return "the same";
    char text[120];
    std::snprintf(text, sizeof text, "\noverlap makes a step %.2f times as fast",
                  off.step / on.step);
    return "milliseconds\n        step  backward  gradients  exposed  hidden" +
           row("off", off, off.exposed) + row("on", on, off.exposed) + text;
  });
}
