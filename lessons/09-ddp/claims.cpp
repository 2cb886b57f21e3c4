// claims: statements of tutorials about DistributedDataParallel, tested on the runtime. One
// section for each argument: buckets, accumulation, unused, batches, buffers, hooks, uneven.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "lessons/09-ddp/ranks.hpp"
#include "runtime/autograd/engine.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/nn/layers.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/beyond/sync_batch_norm.hpp"
#include "runtime/parallel/ddp.hpp"
#include "runtime/tensor/tensor.hpp"

using namespace ringsmith;

namespace {

NamedTensors two_weights() {
  NamedTensors model;
  for (const char* name : {"used", "branch"}) {
    Tensor w = full({4}, 1.0);
    w.requires_grad_();
    model.emplace_back(name, w);
  }
  return model;
}

std::string sizes(const BucketPlan& plan) {
  std::string text;
  for (const BucketLayout& bucket : plan.buckets) {
    text += text.empty() ? "" : ",  ";
    text += std::to_string(bucket.size().value / 1024) + " KiB:";
    for (const BucketSlot& slot : bucket.slots) text += " w" + std::to_string(slot.parameter);
  }
  return text;
}

// Eight layers of 256 KiB, one after the other: bucket caps of 256 and 512 KiB.
void buckets() {
  on_ranks(2, [](const Group& group) {
    NamedTensors model;
    for (int p = 0; p < 8; ++p) {
      Tensor w = full({256, 256}, 0.01);
      w.requires_grad_();
      model.emplace_back("w" + std::to_string(p), w);
    }
    DistributedDataParallel ddp(model, {}, group, {.bucket_cap_mb = 0.5, .first_bucket_mb = 0.25});
    std::string text;
    for (int step = 1; step <= 2; ++step) {
      ddp.forward([&] {
           Tensor x = full({1, 256}, 1.0);
           for (const auto& named : model) x = matmul(x, named.second);
           return sum(x);
         })
          .backward();
      text +=
          (step == 1 ? "backward 1: " : "\n          backward 2: ") + sizes(ddp.reducer().plan());
    }
    return group->rank() == 0 ? text : "the same";
  });
}

// Four microbatches, averaged after each, or after the last only.
void accumulation() {
  on_ranks(2, [](const Group& group) {
    std::vector<float> gradient[2];
    std::uint64_t passes[2] = {};
    for (const bool wait : {false, true}) {
      NamedTensors model = two_weights();
      DistributedDataParallel ddp(model, {}, group);
      for (int micro = 0; micro < 4; ++micro) {
        const auto backward_once = [&] {
          const Tensor x = full({4}, 0.1 * (group->rank() + 1) + micro);
          ddp.forward([&] { return sum(mul(add(model[0].second, model[1].second), x)); })
              .backward();
        };
        if (wait && micro < 3) {
          const auto guard = ddp.no_sync();
          backward_once();
        } else {
          backward_once();
        }
      }
      gradient[wait] = model[0].second.grad().to_vector<float>();
      passes[wait] = ddp.reducer().statistics().step;
    }
    float apart = 0;
    for (std::size_t i = 0; i < gradient[0].size(); ++i)
      apart = std::max(apart, std::abs(gradient[0][i] - gradient[1][i]) / std::abs(gradient[1][i]));
    char text[120];
    std::snprintf(
        text, sizeof text, "reductions: %d each time, %d with no_sync; gradients %.0e apart",
        static_cast<int>(passes[0]), static_cast<int>(passes[1]), static_cast<double>(apart));
    return std::string(text);
  });
}

// Rank 1 takes another path through the model and never uses 'branch'.
void unused() {
  for (const bool find : {false, true}) {
    std::printf("find_unused_parameters = %s\n", find ? "true" : "false");
    on_ranks(2, [find](const Group& group) {
      NamedTensors model = two_weights();
      DistributedDataParallel ddp(model, {}, group, {.find_unused_parameters = find});
      ddp.forward([&] {
           Tensor loss = sum(mul(model[0].second, 2.0));
           if (group->rank() == 0) loss = add(loss, sum(mul(model[1].second, 6.0)));
           return loss;
         })
          .backward();
      return "used  " + numbers(model[0].second.grad()) + "   branch  " +
             numbers(model[1].second.grad());
    });
  }
}

// Six samples on two ranks, split 3 + 3 and 4 + 2; the loss is a mean. One process would get the
// mean of all six, 3.5.
void batches() {
  for (const int first : {3, 4}) {
    std::printf("%d + %d samples\n", first, 6 - first);
    on_ranks(2, [first](const Group& group) {
      std::string text;
      for (const bool weighted : {false, true}) {
        NamedTensors model = {{"w", full({1}, 1.0).requires_grad_()}};
        DistributedDataParallel ddp(model, {}, group);
        std::vector<float> mine;
        for (int i = 0; i < 6; ++i)
          if ((i < first) == (group->rank() == 0)) mine.push_back(static_cast<float>(i + 1));
        ddp.forward([&] {
             Tensor loss = mean(mul(model[0].second, from_vector(mine)));
             // n_r W / (sum of n): this rank's share, times W, because the average divides by W.
             if (weighted) loss = mul(loss, static_cast<double>(mine.size()) * group->size() / 6);
             return loss;
           })
            .backward();
        text += (weighted ? "   weighted  " : "mean of means  ") + numbers(model[0].second.grad());
      }
      return text;
    });
  }
}

// One channel, normalised. Rank 0's rows have the mean 1, rank 1's have the mean 3.
void buffers() {
  BatchNorm2d alone(1);
  for (int step = 0; step < 2; ++step)
    alone.forward(from_vector<float>({0, 2, 2, 4}, {4, 1, 1, 1}));
  std::printf("running mean of one process with all rows: %s\n",
              numbers(alone.running_mean).c_str());
  on_ranks(2, [](const Group& group) {
    std::string text;
    for (const bool together : {false, true}) {
      BatchNorm2d model(1);
      if (together) convert_sync_batchnorm(model, group);
      DistributedDataParallel ddp(model, group);
      const float low = group->rank() == 0 ? 0 : 2;
      const Tensor rows = from_vector<float>({low, low + 2}, {2, 1, 1, 1});
      for (const char* step : {"step 1  ", "   step 2  "}) {
        sum(ddp.forward(rows)).backward();
        if (!together) text += step + numbers(model.running_mean);
      }
      ddp.synchronise_buffers();
      text += (together ? "   SyncBatchNorm  " : "   synchronised  ") + numbers(model.running_mean);
    }
    return text;
  });
}

// Gradients of 2 and 4: sums and averages of a communication hook; clipping at 2.5.
void hooks() {
  on_ranks(2, [](const Group& group) {
    const auto gradient = [&](const CommHook& hook, bool clip) {
      const Tensor w = full({1}, 1.0).requires_grad_();
      DistributedDataParallel ddp({{"w", w}}, {}, group);
      if (hook.call) ddp.register_comm_hook(hook);
      if (clip)
        register_post_accumulate_grad_hook(w, [](const Tensor& leaf) {
          leaf.grad().fill_(std::min(leaf.grad().item<float>(), 2.5F));
        });
      ddp.forward([&] { return sum(mul(w, 2.0 + 2 * group->rank())); }).backward();
      return numbers(w.grad());
    };
    const CommHook sums{"sums", [&](const GradBucket& bucket) {
                          return all_reduce(group, bucket.buffer, comm::ReduceOp::sum);
                        }};
    return "no hook " + gradient({}, false) + "   sum " + gradient(sums, false) +
           "   allreduce_hook " + gradient(allreduce_hook(group), false) + "   fp16 " +
           gradient(fp16_compress_hook(group), false) + "   clipped by each rank " +
           gradient({}, true);
  });
}

// Two batches on rank 0, three on rank 1; each moves w by its gradient, 6.
void uneven() {
  on_ranks(2, [](const Group& group) {
    std::string text;
    for (const bool all : {true, false}) {
      const Tensor w = full({1}, 0.0).requires_grad_();
      DistributedDataParallel ddp({{"w", w}}, {}, group);
      SGD optimizer({w}, {.lr = 1});
      int steps = 0;
      ddp.join(
          [&] {
            for (; steps < 2 + group->rank(); ++steps) {
              optimizer.zero_grad();
              ddp.forward([&] { return sum(mul(w, 6.0)); }).backward();
              optimizer.step();
            }
          },
          {.divide_by_initial_world_size = all});
      text += all ? std::to_string(steps) + " steps, w " : "   divided by the ranks left: w ";
      text += numbers(w);
    }
    return text;
  });
}

}  // namespace

int main(int argc, char** argv) {
  const std::pair<const char*, void (*)()> sections[] = {
      {"buckets", buckets}, {"accumulation", accumulation}, {"unused", unused},
      {"batches", batches}, {"buffers", buffers},           {"hooks", hooks},
      {"uneven", uneven}};
  for (const auto& [name, run] : sections)
    if (argc == 2 && std::strcmp(argv[1], name) == 0) return run(), 0;
  std::fprintf(stderr,
               "claims buckets | accumulation | unused | batches | buffers | hooks | "
               "uneven\n");
  return 2;
}
