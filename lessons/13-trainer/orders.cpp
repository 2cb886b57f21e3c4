// orders: one small training run on two ranks, first correct and then with one mistake at a time,
// compared with one process. A model of two weights, momentum, eight samples, batches of four.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <vector>

namespace {

using Weights = std::array<double, 2>;
struct Sample {
  double x0, x1, y;
};
// y = 2 x0 - x1, and noise.
constexpr std::array<Sample, 8> kData{{{1, 0, 2.1},
                                       {0, 1, -0.9},
                                       {1, 1, 1.2},
                                       {2, 1, 2.8},
                                       {1, 2, 0.1},
                                       {2, 0, 4.2},
                                       {0, 2, -2.2},
                                       {2, 2, 1.9}}};
constexpr int kBatch = 4, kPerEpoch = 2, kSteps = 8;

// Epoch e uses the samples in this order; 5 and 8 have no common divisor, so each appears once.
std::size_t sample_at(int epoch, int place) {
  return static_cast<std::size_t>((place * 5 + epoch * 3) % 8);
}

struct Replica {
  Weights w{0.5, 0.5}, gradient{}, momentum{};
  double learn(const std::vector<std::size_t>& samples) {  // mean loss; adds into the gradient
    double loss = 0;
    for (const std::size_t s : samples) {
      const Sample& d = kData[s];
      const double error = w[0] * d.x0 + w[1] * d.x1 - d.y;
      loss += error * error / double(samples.size());
      gradient[0] += 2 * error * d.x0 / double(samples.size());
      gradient[1] += 2 * error * d.x1 / double(samples.size());
    }
    return loss;
  }
  void step() {
    for (std::size_t i = 0; i < 2; ++i) {
      momentum[i] = 0.5 * momentum[i] + gradient[i];
      w[i] -= 0.05 * momentum[i];
    }
  }
};

struct Order {
  const char* name;
  bool zero_first = true, average = true, average_first = true, mean_loss = true;
  bool own_part = true, whole_batch = false;
  int resume_step = 0, resume_place = 0;  // added when the job resumes at step 3
  bool keeps_momentum = true, keeps_epoch = true;
};

struct Trained {
  std::vector<double> losses;
  double apart = 0;  // largest difference between the replicas' weights, after any step
};

Trained train(const Order& o, int world) {
  std::vector<Replica> ranks(static_cast<std::size_t>(world));
  Trained trained;
  int step = 0, shift = 0;
  for (int done = 0; done < kSteps; ++done, ++step) {
    if (done == 3) {  // killed and started again, from a checkpoint of step 3
      step += o.resume_step;
      shift = o.resume_place;
      for (Replica& r : ranks)
        if (!o.keeps_momentum) r.momentum = {};
    }
    const int epoch = o.keeps_epoch || done < 3 ? step / kPerEpoch : (step - 3) / kPerEpoch;
    std::vector<double> losses;
    for (int rank = 0; rank < world; ++rank) {
      Replica& r = ranks[static_cast<std::size_t>(rank)];
      if (o.zero_first) r.gradient = {};
      std::vector<std::size_t> samples;
      for (int i = o.own_part ? rank : 0; i < kBatch; i += o.whole_batch ? 1 : world)
        samples.push_back(sample_at(epoch, ((step + shift) % kPerEpoch) * kBatch + i));
      losses.push_back(r.learn(samples));
      if (!o.average_first) r.step();
    }
    Weights sum{};
    for (const Replica& r : ranks)
      for (std::size_t i = 0; i < 2; ++i) sum[i] += r.gradient[i] / world;
    double loss = 0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (o.average) ranks[rank].gradient = sum;
      if (o.average_first) ranks[rank].step();
      loss += losses[rank] / world;
    }
    trained.losses.push_back(o.mean_loss ? loss : losses[0]);
    for (const Replica& r : ranks)
      for (std::size_t i = 0; i < 2; ++i)
        trained.apart = std::max(trained.apart, std::abs(r.w[i] - ranks[0].w[i]));
  }
  return trained;
}

}  // namespace

int main() {
  const Trained one = train({"one process"}, 1);
  std::vector<Order> orders{{"as it should be"}};
  const auto add = [&](const char* name, const std::function<void(Order&)>& change) {
    orders.push_back({name});
    change(orders.back());
  };
  add("no average", [](Order& o) { o.average = false; });
  add("the step before the average", [](Order& o) { o.average_first = false; });
  add("gradients never zeroed", [](Order& o) { o.zero_first = false; });
  add("rank 0's own loss", [](Order& o) { o.mean_loss = false; });
  add("the same samples on both ranks", [](Order& o) { o.own_part = false; });
  add("resume: momentum forgotten", [](Order& o) { o.keeps_momentum = false; });
  add("resume: a batch repeated", [](Order& o) { o.resume_step = -1; });
  add("resume: a batch skipped", [](Order& o) { o.resume_step = 1; });
  add("resume: the epoch begun anew", [](Order& o) { o.resume_place = 1; });
  add("resume: epochs counted anew", [](Order& o) { o.keeps_epoch = false; });
  std::printf("%-32s %-18s %s\n", "", "replicas apart by", "first loss that is not one process's");
  for (const Order& order : orders) {
    const Trained two = train(order, 2);
    int first = -1;
    for (int s = kSteps - 1; s >= 0; --s)
      if (std::abs(two.losses[std::size_t(s)] - one.losses[std::size_t(s)]) > 1e-12) first = s;
    std::printf("%-32s %-18.3f ", order.name, two.apart);
    if (first < 0)
      std::printf("none\n");
    else
      std::printf("step %d: %.3f, not %.3f\n", first, two.losses[std::size_t(first)],
                  one.losses[std::size_t(first)]);
  }
}
