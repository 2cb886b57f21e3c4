// The CPU half of kernel_bench: the speed of the kernels, family by family, and of their slow
// oracles.
//
// Most shapes come from the two models that the benchmarks train: an MLP 784-1024-1024-10 at batch
// 64 and a GPT of 4 layers, width 128, 4 heads, context 128, vocabulary 65 at batch 16. Rates count
// floating-point operations for products and attention, and for all other kernels the minimum
// number of bytes that the kernel must read and write.
#include <array>
#include <chrono>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <vector>

#include "kernels/attention.hpp"
#include "kernels/cpu/gemm.hpp"
#include "kernels/embedding.hpp"
#include "kernels/layernorm.hpp"
#include "kernels/loss.hpp"
#include "kernels/matmul.hpp"
#include "kernels/mode.hpp"
#include "kernels/optim.hpp"
#include "kernels/softmax.hpp"
#include "labs/apps/kernel_bench/kernel_bench.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/table.hpp"

namespace ringsmith::apps {

using namespace kernels::cpu;

namespace {

struct Case {
  std::string family, what, shape;
  double work = 0;  // floating-point operations, or bytes
  bool flops = false;
  std::function<void()> run;
};

double bytes(std::int64_t floats) { return 4.0 * static_cast<double>(floats); }

// Forward and backward, called as linear() calls them.
void add_linear(std::vector<Case>& cases, const std::string& layer, std::int64_t n, std::int64_t in,
                std::int64_t out) {
  struct Data {
    std::vector<float> x, w, b, y, dw;
  };
  const auto d = std::make_shared<Data>(
      Data{values(n * in), values(in * out), values(out), values(n * out), values(in * out)});
  const double flops = 2.0 * static_cast<double>(n * in * out);
  const auto shape = fmt::format("{} {}x{} -> {}", layer, n, in, out);
  const auto matrices = [=] {
    return std::array{row_major(d->x.data(), n, in), row_major(d->w.data(), out, in),
                      row_major(d->y.data(), n, out), row_major(d->dw.data(), out, in)};
  };
  cases.push_back({"linear", "y = x w^T + b", shape, flops, true, [=] {
                     const auto [x, w, y, dw] = matrices();
                     linear<float>(x, w, d->b, y);
                   }});
  cases.push_back({"linear", "dx = dy w", shape, flops, true, [=] {
                     const auto [x, w, y, dw] = matrices();
                     matmul<float>(y, w, x);
                   }});
  cases.push_back({"linear", "dw = dy^T x", shape, flops, true, [=] {
                     const auto [x, w, y, dw] = matrices();
                     matmul<float>(y.t(), x, dw);
                   }});
  cases.push_back({"linear", "db = sum dy", shape, bytes(n * out), false,
                   [=] { column_sum<float>(row_major(d->y.data(), n, out), d->b); }});
}

void add_matmul(std::vector<Case>& cases) {
  // Cubes, a layer of the MLP, and a projection of a GPT that is as wide as GPT-2.
  for (const auto [m, k, n] : std::vector<ProductSize>{{32, 32, 32},
                                                       {64, 64, 64},
                                                       {128, 128, 128},
                                                       {256, 256, 256},
                                                       {512, 512, 512},
                                                       {64, 1024, 1024},
                                                       {2048, 768, 768}}) {
    const auto shape = fmt::format("{}x{}x{}", m, k, n);
    const double flops = 2.0 * static_cast<double>(m * k * n);
    struct Data {
      ProductSize p;
      std::vector<float> a, b, c;
      std::vector<bf16> a16, b16, c16;
    };
    const auto half = [](const std::vector<float>& v) {
      return std::vector<bf16>(v.begin(), v.end());
    };
    const auto d = std::make_shared<Data>(
        Data{{m, k, n}, values(m * k), values(k * n), values(m * n), {}, {}, {}});
    d->a16 = half(d->a), d->b16 = half(d->b), d->c16 = half(d->c);
    cases.push_back({"matmul", "c = a b", shape, flops, true, [=] {
                       matmul<float>(row_major<const float>(d->a.data(), d->p.m, d->p.k),
                                     row_major<const float>(d->b.data(), d->p.k, d->p.n),
                                     row_major(d->c.data(), d->p.m, d->p.n));
                     }});
    for (const kernels::Bf16Products how : kernels::bf16_products_here())
      cases.push_back(
          {"matmul", fmt::format("c = a b, bf16, {}", name_of(how)), shape, flops, true, [=] {
             kernels::set_bf16_products(how);
             matmul<bf16>(row_major<const bf16>(d->a16.data(), d->p.m, d->p.k),
                          row_major<const bf16>(d->b16.data(), d->p.k, d->p.n),
                          row_major(d->c16.data(), d->p.m, d->p.n));
           }});
  }
}

void add_rows(std::vector<Case>& cases) {
  const std::int64_t n = 2048, width = 128, classes = 65;
  struct Data {
    std::vector<float> x, y, dx, mean, rstd, w, b, dw, db;
  };
  const auto d = std::make_shared<Data>(Data{values(n * width), values(n * width),
                                             values(n * width), values(n), values(n), values(width),
                                             values(width), values(width), values(width)});
  const auto wide = fmt::format("{}x{}", n, width), narrow = fmt::format("{}x{}", n, classes);
  const Slices slices{n, classes, 1};
  const auto logits = std::make_shared<std::vector<float>>(values(n * classes));
  const auto out = std::make_shared<std::vector<float>>(values(n * classes));
  const auto index = std::make_shared<std::vector<std::int64_t>>(static_cast<std::size_t>(n), 3);
  cases.push_back({"layer_norm", "forward", wide, bytes(2 * n * width), false,
                   [=] { layer_norm<float>(d->x, d->w, d->b, 1e-5, d->y, d->mean, d->rstd); }});
  cases.push_back({"layer_norm", "backward", wide, bytes(3 * n * width), false, [=] {
                     layer_norm_backward<float>(d->y, d->x, d->w, d->mean, d->rstd, d->dx, d->dw,
                                                d->db);
                   }});
  cases.push_back({"softmax", "forward", narrow, bytes(2 * n * classes), false,
                   [=] { softmax<float>(*logits, *out, slices); }});
  cases.push_back({"softmax", "log_softmax", narrow, bytes(2 * n * classes), false,
                   [=] { log_softmax<float>(*logits, *out, slices); }});
  cases.push_back({"softmax", "cross_entropy backward", narrow, bytes(2 * n * classes), false, [=] {
                     const std::vector<float> grad = {1.0F / static_cast<float>(n)};
                     cross_entropy_backward<float>(*logits, {*index, classes}, grad, *out);
                   }});
  cases.push_back({"embedding", "forward", wide, bytes(2 * n * width), false,
                   [=] { embedding<float>(d->x, width, *index, d->y); }});
  cases.push_back({"embedding", "backward", wide, bytes(n * width), false,
                   [=] { embedding_backward<float>(d->y, width, *index, d->x); }});
}

void add_attention(std::vector<Case>& cases) {
  const AttentionShape s{16, 4, 128, 32, true};
  const std::int64_t c = s.heads * s.dim;
  struct Data {
    std::vector<float> qkv, out, dout, dqkv;
    std::vector<RowStatistic<float>> statistics;
  };
  const auto d = std::make_shared<Data>(
      Data{values(s.rows() * s.dim * 3), values(s.rows() * s.dim), values(s.rows() * s.dim),
           values(s.rows() * s.dim * 3),
           std::vector<RowStatistic<float>>(static_cast<std::size_t>(s.rows()))});
  const auto part = [=](std::vector<float>& x, int i) {
    return Heads<float>{x.data() + i * c, s.tokens * 3 * c, s.dim, 3 * c};
  };
  const auto plain = [=](std::vector<float>& x) {
    return Heads<float>{x.data(), s.tokens * c, s.dim, c};
  };
  // Counts the whole square, including the masked half, which a library without causal skipping
  // computes.
  const double product = 2.0 * static_cast<double>(s.rows() * s.tokens * s.dim);
  const auto shape = fmt::format("b{} h{} t{} d{}, causal", s.batch, s.heads, s.tokens, s.dim);
  const auto forward = [=] {
    attention<float>(part(d->qkv, 0), part(d->qkv, 1), part(d->qkv, 2), plain(d->out),
                     d->statistics, s);
  };
  forward();
  cases.push_back({"attention", "forward", shape, 2 * product, true, forward});
  cases.push_back({"attention", "backward", shape, 5 * product, true, [=] {
                     attention_backward<float>(plain(d->dout),
                                               {part(d->qkv, 0), part(d->qkv, 1), part(d->qkv, 2),
                                                plain(d->out), d->statistics},
                                               part(d->dqkv, 0), part(d->dqkv, 1), part(d->dqkv, 2),
                                               s);
                   }});
}

void add_optimizers(std::vector<Case>& cases) {
  for (const std::int64_t n : {1 << 16, 1 << 20, 1 << 23}) {
    struct Data {
      std::vector<float> p, g, m, v;
    };
    const auto d = std::make_shared<Data>(Data{values(n), values(n), values(n), values(n)});
    for (float& v : d->v) v = 1.0F;
    const auto shape = fmt::format("{} parameters", n);
    cases.push_back({"optim", "SGD with momentum", shape, bytes(5 * n), false,
                     [=] { sgd<float>(d->p, d->g, d->m, {.lr = 1e-6, .momentum = 0.9}); }});
    cases.push_back({"optim", "AdamW", shape, bytes(7 * n), false, [=] {
                       adam<float>(d->p, d->g, d->m, d->v, {},
                                   {.lr = 1e-6, .weight_decay = 0.01, .decoupled = true});
                     }});
    cases.push_back({"optim", "sum of squares", shape, bytes(n), false, [=] {
                       double sum = 0;
                       sum_of_squares<float>(d->g, {&sum, 1});
                       volatile double sink = sum;
                       (void)sink;
                     }});
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  add_matmul(cases);
  add_linear(cases, "MLP", 64, 784, 1024);
  add_linear(cases, "MLP", 64, 1024, 1024);
  add_linear(cases, "MLP", 64, 1024, 10);
  add_linear(cases, "GPT qkv", 2048, 128, 384);
  add_linear(cases, "GPT out", 2048, 128, 128);
  add_linear(cases, "GPT up", 2048, 128, 512);
  add_linear(cases, "GPT down", 2048, 512, 128);
  add_linear(cases, "GPT head", 2048, 128, 65);
  add_rows(cases);
  add_attention(cases);
  add_optimizers(cases);
  return cases;
}

double seconds_of(const std::function<void()>& run, int times) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (int i = 0; i < times; ++i) run();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

void bench_on_cpu(const KernelBenchOptions& o) {
  kernels::set_threads(o.threads);
  bool openblas = true;
  std::string peer;
  try {
    peer = blas_description();
  } catch (const Error& missing) {  // not an error: the table is useful without it
    openblas = false;
    peer = std::string("no OpenBLAS column: ") + missing.what();
  }
  using Align = Table::Align;
  Table table({{"family", Align::left},
               {"kernel", Align::left},
               {"shape", Align::left},
               {"fast us"},
               {"rate"},
               {"", Align::left},
               {"OpenBLAS"},
               {"oracle us"},
               {"ratio"}});
  for (const Case& c : all_cases()) {
    if (o.family != "all" && o.family != c.family) continue;
    const auto measure = [&](kernels::Mode mode, kernels::Products products, double seconds) {
      kernels::set_mode(mode);
      kernels::set_products(products);
      return median_seconds([&](int times) { return seconds_of(c.run, times); }, seconds);
    };
    const double fast = measure(kernels::Mode::fast, kernels::Products::own, o.seconds);
    const auto rate = [&](double seconds) {
      return fmt::format("{:.1f}", c.work / seconds * 1e-9);
    };
    std::string blas, slow, ratio;
    if (c.flops && openblas)
      blas = rate(measure(kernels::Mode::fast, kernels::Products::openblas, o.seconds));
    if (o.oracle) {
      const double seconds = measure(kernels::Mode::oracle, kernels::Products::own, o.seconds / 4);
      slow = fmt::format("{:.1f}", seconds * 1e6);
      ratio = fmt::format("{:.1f}", seconds / fast);
    }
    table.row({c.family, c.what, c.shape, fmt::format("{:.1f}", fast * 1e6), rate(fast),
               c.flops ? "GFLOP/s" : "GB/s", blas, slow, ratio});
  }
  fmt::print("{}\n{} thread{}, medians\n\n{}", peer, o.threads, o.threads == 1 ? "" : "s",
             table.str());
}

}  // namespace ringsmith::apps
