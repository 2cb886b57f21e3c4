// agree: three ranks, one of which overflows f16; scales that differ; five batches in groups of
// two. One section for each argument: skip, scales, groups.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "lessons/09-ddp/ranks.hpp"
#include "runtime/amp/grad_scaler.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/ddp.hpp"
#include "runtime/tensor/tensor.hpp"

using namespace ringsmith;

namespace {

// The loss is w times x, multiplied in f16: the gradient for w is x, and x times the scale must
// fit into f16.
Tensor loss_of(const Tensor& w, double x) {
  const Tensor product = mul(to(w, DType::f16), to(full({1}, x), DType::f16));
  return sum(to(product, DType::f32));
}

Tensor weight() { return full({1}, 64).requires_grad_(); }

std::string number(double x) {
  if (std::isnan(x)) return " nan";  // of either sign
  char text[40];
  std::snprintf(text, sizeof text, " %g", x);
  return text;
}

// Four steps; in the second one rank 1's gradient is 100 instead of 1.
void skip(bool own) {
  std::printf(own ? "each rank looks at its own gradients\n" : "all look at the average\n");
  on_ranks(3, [own](const Group& group) {
    const Tensor w = weight();
    DistributedDataParallel ddp({{"w", w}}, {}, group);
    SGD optimizer({w}, {.lr = 1});
    GradScaler scaler({.init_scale = 1024});
    std::string line = "w";
    std::string scales = "   scale";
    for (int step = 0; step < 4; ++step) {
      const double x = step == 1 && group->rank() == 1 ? 100 : 1;
      bool finite = true;
      if (own) {
        optimizer.zero_grad();
        const auto local = ddp.no_sync();
        scaler.scale(ddp.forward([&] { return loss_of(w, x); })).backward();
        finite = std::isfinite(w.grad().item<float>());
      }
      optimizer.zero_grad();
      scaler.scale(ddp.forward([&] { return loss_of(w, x); })).backward();
      if (!own) {
        scaler.step(optimizer);
        scaler.update();
      } else {
        const double scale = scaler.get_scale();
        w.set_grad(mul(w.grad(), 1 / scale));
        if (finite) optimizer.step();
        scaler.update(finite ? scale : scale / 2);
      }
      line += number(w.detach().item<float>());
      scales += number(scaler.get_scale());
    }
    return line + scales;
  });
}

// Rank 0 begins with twice the scale of the others.
void scales() {
  on_ranks(3, [](const Group& group) {
    const Tensor w = weight();
    DistributedDataParallel ddp({{"w", w}}, {}, group);
    SGD optimizer({w}, {.lr = 1});
    GradScaler scaler({.init_scale = group->rank() == 0 ? 2048.0 : 1024.0});
    std::string line = "w";
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      scaler.scale(ddp.forward([&] { return loss_of(w, 3); })).backward();
      scaler.step(optimizer);
      scaler.update();
      line += number(w.detach().item<float>());
    }
    return line;
  });
}

// An epoch of five batches, whose gradients are 10, 20, 30, 40 and 50 on both ranks.
void groups(bool by_own_size) {
  std::printf(by_own_size ? "divided by the group's size\n" : "divided by 2\n");
  on_ranks(2, [by_own_size](const Group& group) {
    const Tensor w = weight();
    DistributedDataParallel ddp({{"w", w}}, {}, group);
    std::string line = "gradients of the steps";
    for (int first = 0; first < 5; first += 2) {
      const int size = std::min(2, 5 - first);
      w.set_grad({});
      for (int batch = first; batch < first + size; ++batch) {
        const auto backward = [&] {
          const Tensor loss = ddp.forward([&] { return loss_of(w, 10 * (batch + 1)); });
          mul(loss, 1.0 / (by_own_size ? size : 2)).backward();
        };
        if (batch + 1 < first + size) {
          const auto local = ddp.no_sync();
          backward();
        } else {
          backward();
        }
      }
      line += number(w.grad().item<float>());
    }
    return line + ",  reductions" + number(static_cast<double>(ddp.reducer().statistics().step));
  });
}

}  // namespace

int main(int argc, char** argv) {
  const auto is = [&](const char* name) { return argc == 2 && std::strcmp(argv[1], name) == 0; };
  if (is("skip")) {
    skip(false);
    skip(true);
  } else if (is("scales")) {
    scales();
  } else if (is("groups")) {
    groups(true);
    groups(false);
  } else {
    std::fprintf(stderr, "usage: lesson14_agree skip|scales|groups\n");
    return 2;
  }
}
