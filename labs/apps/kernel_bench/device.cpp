// The device half of kernel_bench.
//
// Memory-bound kernels are compared with the driver's own copy, which no kernel beats by much. The
// rate counts the minimum number of bytes that a kernel must move, so a kernel that reads an
// operand twice shows a low rate. On a GPU an operand is 256 MiB by default, too large for any
// cache.
//
// Products are measured with every version (rung) in kernels/cuda/matmul.hpp, and these versions
// are compared with each other.
#include <array>
#include <fmt/format.h>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/copy.hpp"
#include "kernels/cuda/matmul.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/layernorm.hpp"
#include "kernels/loss.hpp"
#include "kernels/optim.hpp"
#include "kernels/reduce.hpp"
#include "kernels/reduction.hpp"
#include "kernels/softmax.hpp"
#include "labs/apps/kernel_bench/kernel_bench.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/table.hpp"
#include "runtime/device/transfer.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith::apps {

using namespace kernels;

namespace {

constexpr int kNearCopy = 85;  // percent of a copy's rate
constexpr int kRingStep = 80;  // percent, for the ring's reductions
constexpr std::int64_t kWidth = 1024;
constexpr std::int64_t kClasses = 32 * kWidth;  // columns of the logits
constexpr std::size_t kParameters = 128;        // for AdamW

struct Case {
  std::string family, what;
  int operands;  // read or written, once each
  int percent;   // required rate, in percent of the copy's
  std::function<void()> run;
};

// x and y are only read.
struct Operands {
  Tensor x, y, p, m, v;              // (rows, kWidth)
  Tensor weight, bias, dw, db;       // (kWidth)
  Tensor mean, rstd, one, one_more;  // (rows), (rows), (1) float, (1) double
  Tensor targets, losses, log_sums;  // of n / kClasses rows of logits
  std::int64_t rows, n;
};

Operands make_operands(Device device, std::int64_t mib) {
  const std::int64_t n = mib * (1 << 20) / static_cast<std::int64_t>(sizeof(float));
  const std::int64_t rows = n / kWidth;
  const auto on_device = [&](Shape shape, double value) {
    return full(std::move(shape), value).to(device);
  };
  const Tensor x = from_vector(values(n), {rows, kWidth}).to(device);
  return {x,
          on_device({rows, kWidth}, 0.5),
          on_device({rows, kWidth}, 0),
          on_device({rows, kWidth}, 0),
          on_device({rows, kWidth}, 1),
          on_device({kWidth}, 1),
          on_device({kWidth}, 0),
          on_device({kWidth}, 0),
          on_device({kWidth}, 0),
          on_device({rows}, 0),
          on_device({rows}, 1),
          on_device({1}, 0),
          zeros({1}, {DType::f64, device}),
          zeros({n / kClasses}, {DType::i64, device}),
          on_device({n / kClasses}, 0),
          on_device({n / kClasses, 2}, 0),
          rows,
          n};
}

std::span<float> span(const Tensor& t) { return t.kernel_span<float>(); }
std::byte* bytes_in(const Tensor& t) {
  return reinterpret_cast<std::byte*>(t.kernel_data<float>());
}

// Writes a + b to all tensors in `into`: one as in the ring's recvReduceSend, two as in
// recvReduceCopySend.
void reduce_two(const Tensor& a, const Tensor& b, const std::vector<Tensor>& into) {
  const std::array<ReduceSource, 2> sources{{{bytes_in(a), false}, {bytes_in(b), false}}};
  std::vector<std::byte*> destinations;
  for (const Tensor& t : into) destinations.push_back(bytes_in(t));
  cuda::reduce(DType::f32, Reduction::sum, sources, destinations,
               Elements(static_cast<std::size_t>(a.numel())));
}

std::vector<Case> cases_of(const Operands& o) {
  using namespace kernels::cuda;
  const View<const float> x = o.x.view_of<float>(), y = o.y.view_of<float>();
  const auto out = o.p.view_of<float>();
  const Slices slices{o.rows, kWidth, 1};
  const auto sum_to = [=](const Tensor& to, const Shape& strides) {
    return [=] { sum(to.as_strided({o.rows, kWidth}, strides, 0).view_of<float>(), x); };
  };
  std::vector<Case> cases;
  const auto add = [&](const char* family, const char* what, int operands,
                       std::function<void()> run) {
    const int percent = family == std::string("ring") ? kRingStep : kNearCopy;
    cases.push_back({family, what, operands, percent, std::move(run)});
  };
  add("elementwise", "copy", 2, [=] { copy(out, x); });
  add("elementwise", "relu(x)", 2, [=] { unary(Unary::relu, out, x); });
  add("elementwise", "gelu_tanh(x)", 2, [=] { unary(Unary::gelu_tanh, out, x); });
  add("elementwise", "x + y", 3, [=] { binary(Binary::add, out, x, y); });
  add("elementwise", "gelu_tanh backward", 3,
      [=] { binary(Binary::gelu_tanh_backward, out, y, x); });
  add("reduction", "sum of all", 1, sum_to(o.one, {0, 0}));
  add("reduction", "sums of rows", 1, sum_to(o.mean, {1, 0}));
  add("reduction", "sums of columns", 1, sum_to(o.dw, {0, 1}));
  add("layer_norm", "forward", 2, [=] {
    layer_norm<float>(span(o.x), span(o.weight), span(o.bias), 1e-5, span(o.p), span(o.mean),
                      span(o.rstd));
  });
  add("layer_norm", "backward", 3, [=] {
    layer_norm_backward<float>(span(o.y), span(o.x), span(o.weight), span(o.mean), span(o.rstd),
                               span(o.p), span(o.dw), span(o.db));
  });
  add("layer_norm", "with the residual", 4, [=] {
    add_layer_norm<float>(span(o.x), span(o.y), span(o.weight), span(o.bias), 1e-5, span(o.p),
                          span(o.m), span(o.mean), span(o.rstd));
  });
  add("layer_norm", "with the residual, backward", 4, [=] {
    add_layer_norm_backward<float>(span(o.y), span(o.m), span(o.x), span(o.weight), span(o.mean),
                                   span(o.rstd), span(o.p), span(o.dw), span(o.db));
  });
  add("softmax", "forward", 2, [=] { softmax<float>(span(o.x), span(o.p), slices); });
  add("softmax", "backward", 3,
      [=] { softmax_backward<float>(span(o.x), span(o.y), span(o.p), slices); });
  add("softmax", "log_softmax", 2, [=] { log_softmax<float>(span(o.x), span(o.p), slices); });
  const Targets targets{o.targets.kernel_span<std::int64_t>(), kClasses};
  const std::span<LogSum<float>> statistics(
      reinterpret_cast<LogSum<float>*>(span(o.log_sums).data()), targets.index.size());
  add("softmax", "cross_entropy", 1,
      [=] { cross_entropy_rows<float>(span(o.x), targets, span(o.losses), statistics); });
  add("softmax", "cross_entropy backward", 2, [=] {
    cross_entropy_rows_backward<float>(span(o.x), statistics, targets, span(o.one), span(o.p));
  });
  add("optim", "SGD with momentum", 5,
      [=] { sgd<float>(span(o.p), span(o.x), span(o.m), {.lr = 1e-6, .momentum = 0.9}); });
  add("optim", "AdamW", 7, [=] {
    adam<float>(span(o.p), span(o.x), span(o.m), span(o.v), {},
                {.lr = 1e-6, .weight_decay = 0.01, .decoupled = true});
  });
  add("optim", "AdamW of many parameters", 7, [=] {
    std::vector<AdamTensor<float>> all;
    for (std::size_t i = 0; i < kParameters; ++i) {
      const auto size = span(o.p).size() / kParameters;
      const auto part = [&](const Tensor& t) { return span(t).subspan(i * size, size); };
      all.push_back({part(o.p), part(o.x), part(o.m), part(o.v), {}});
    }
    adam_all<float>(std::span<const AdamTensor<float>>(all),
                    {.lr = 1e-6, .weight_decay = 0.01, .decoupled = true});
  });
  add("optim", "sum of squares", 1,
      [=] { sum_of_squares<float>(span(o.x), o.one_more.kernel_span<double>()); });
  add("ring", "reduce: p = x + y", 3, [=] { reduce_two(o.x, o.y, {o.p}); });
  add("ring", "reduce and copy: p, m = x + y", 4, [=] { reduce_two(o.x, o.y, {o.p, o.m}); });
  return cases;
}

double measure(const std::function<void()>& run, double budget) {
  const Stream stream = Stream::current();
  const auto seconds = [&](int times) {
    const Event from = Event::record(stream, Event::Timing::on);
    for (int i = 0; i < times; ++i) run();
    const Event to = Event::record(stream, Event::Timing::on);
    to.synchronize();
    return seconds_between(from, to);
  };
  (void)seconds(1);  // the first launch loads the kernel
  return median_seconds(seconds, budget);
}

// Returns the names of the kernels that are too slow.
std::string bench_bandwidth(const KernelBenchOptions& o) {
  const Operands operands = make_operands(o.device, o.mib);
  const double bytes = static_cast<double>(operands.n) * sizeof(float);
  const auto plain_copy = [&] {
    transfer(bytes_in(operands.p), o.device, bytes_in(operands.x), o.device,
             Bytes(static_cast<std::size_t>(bytes)));
  };
  Table table({{"family", Table::Align::left},
               {"kernel", Table::Align::left},
               {"operands"},
               {"ms"},
               {"GB/s"},
               {"of the copy"},
               {kEmulatedDevices ? "" : "must be"}});
  const double copy_seconds = measure(plain_copy, o.seconds);
  table.row({"copy", "by the driver", "2", fmt::format("{:.3f}", copy_seconds * 1e3),
             fmt::format("{:.1f}", 2 * bytes / copy_seconds * 1e-9), "100 %", ""});
  std::string slow;
  for (const Case& c : cases_of(operands)) {
    if (o.family != "all" && o.family != c.family) continue;
    const double seconds = measure(c.run, o.seconds);
    const double share = 100 * c.operands * copy_seconds / (2 * seconds);
    table.row({c.family, c.what, std::to_string(c.operands), fmt::format("{:.3f}", seconds * 1e3),
               fmt::format("{:.1f}", c.operands * bytes / seconds * 1e-9),
               fmt::format("{:.0f} %", share),
               kEmulatedDevices ? "" : fmt::format("{} %", c.percent)});
    if (!(share >= c.percent)) slow += (slow.empty() ? "" : ", ") + c.family + " " + c.what;
  }
  fmt::print("Memory-bound kernels: float, each operand {} MiB in rows of {}\n\n{}\n", o.mib,
             kWidth, table.str());
  return slow;
}

}  // namespace

std::vector<ProductSize> product_sizes(bool emulated) {
  if (emulated) return {{64, 64, 64}, {128, 128, 128}, {64, 24, 157}};
  // The last three are products of GPT-2: from 8 x 1024 tokens to queries, keys and values; to the
  // MLP; to logits.
  return {{512, 512, 512},   {1024, 1024, 1024}, {2048, 2048, 2048}, {4096, 4096, 4096},
          {8192, 768, 2304}, {8192, 768, 3072},  {8192, 768, 50257}};
}

Tensor factor_of_product(std::int64_t rows, std::int64_t columns, Device device) {
  return from_vector(values(rows * columns), {rows, columns}).to(device);
}

namespace {

void bench_products(const KernelBenchOptions& o) {
  std::vector<ProductSize> sizes = product_sizes(kEmulatedDevices);
  if (o.size > 0) sizes = {{o.size, o.size, o.size}};
  const auto empty = [] {
    return Table({{"version"}, {"name", Table::Align::left}, {"shape"}, {"ms"}, {"GFLOP/s"}});
  };
  Table table = empty(), halves = empty();
  for (const auto& [m, k, n] : sizes) {
    const Tensor a = factor_of_product(m, k, o.device), b = factor_of_product(k, n, o.device),
                 c = zeros({m, n}, {DType::f32, o.device});
    const Tensor a16 = a.to(DType::bf16), b16 = b.to(DType::bf16), c16 = c.to(DType::bf16);
    const auto matrix = [](const Tensor& t) {
      return row_major(t.kernel_data<float>(), t.size(0), t.size(1));
    };
    const auto matrix16 = [](const Tensor& t) {
      return row_major(t.kernel_data<bf16>(), t.size(0), t.size(1));
    };
    const auto shape = fmt::format("{}x{}x{}", m, k, n);
    const double operations = 2 * static_cast<double>(m * k * n);
    for (const cuda::MatmulVersion& v : cuda::matmul_versions()) {
      if (o.rung != 0 && o.rung != v.number) continue;
      if (o.rung == 0 && !v.available()) continue;  // if it is asked for, the call says why
      cuda::set_matmul_version(v.number);
      const auto add = [&](Table& to, const auto& product) {
        const double seconds = measure(product, o.seconds);
        to.row({std::to_string(v.number), v.name, shape, fmt::format("{:.3f}", seconds * 1e3),
                fmt::format("{:.1f}", 1e-9 * operations / seconds)});
      };
      add(table, [&] { cuda::matmul<float>(matrix(a), matrix(b), matrix(c)); });
      if (v.number == 3 || v.number >= 7)  // the versions with a bf16 kernel
        add(halves, [&] { cuda::matmul<bf16>(matrix16(a16), matrix16(b16), matrix16(c16)); });
    }
  }
  cuda::set_matmul_version(0);
  fmt::print("Products of float matrices (kernels/cuda/matmul.hpp)\n\n{}\n", table.str());
  fmt::print("Products of bf16 matrices, without the initial rounding of versions 8 to 10\n\n{}\n",
             halves.str());
}

}  // namespace

bool bench_on_device(const KernelBenchOptions& o) {
  require(
      o.rung == 0 || o.family == "matmul",
      "--rung selects a version of matmul: write 'matmul --rung " + std::to_string(o.rung) + "'");
  cuda::set_matmul_version(o.rung);  // throws for an unknown rung
  const DeviceGuard current(o.device);
  fmt::print("{}{}, medians\n\n", o.device.str(),
             kEmulatedDevices ? ": SIMULATED, times are those of the emulator on this machine's "
                                "cores\nand say nothing about GPUs"
                              : "");
  if (o.family == "all" || o.family == "matmul") bench_products(o);
  if (o.family == "matmul") return true;
  const std::string slow = bench_bandwidth(o);
  if (kEmulatedDevices) return true;
  fmt::print("{}\n", slow.empty() ? "all kernels reach the required share of the copy's bandwidth"
                                  : "TOO SLOW: " + slow);
  return slow.empty() || !o.check;
}

}  // namespace ringsmith::apps
