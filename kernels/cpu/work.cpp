#include "kernels/work.hpp"

#include <algorithm>
#include <string_view>

#include "kernels/elementwise.hpp"

namespace ringsmith::kernels {

namespace {

constexpr std::size_t kNone = Operands::kMost;

struct Rule {
  std::string_view kernel;
  double flop;                  // per pair (products), or per element of the largest operand
  std::size_t picked = kNone;   // operand of which only selected rows are read or written
  bool updates = false;         // written operands are read as well
  std::size_t reduced = kNone;  // operand whose view covers only the first element of each run
};
constexpr Rule kRules[] = {
    {"matmul", 2},
    {"matmul_batch", 2},
    {"linear", 2},
    {"conv2d", 2},
    {"conv2d_grad_input", 2},
    {"conv2d_grad_weight", 2},
    {"attention", 4},            // q k^T and P v
    {"attention_backward", 10},  // q k^T again, and the products of dV, dP, dQ, dK
    // The kProducts rules above are products.
    {"add_widened", 1},
    {"column_sum", 1},
    {"conv2d_grad_bias", 1},
    {"masked_scale", 1},
    {"sum", 1},
    {"max", 1, kNone, false, 2},
    {"max_backward", 0, kNone, false, 0},
    {"max_all_backward", 1},
    {"softmax", 5},  // maximum; difference, exp, sum, quotient
    {"log_softmax", 5},
    {"softmax_backward", 4},
    {"log_softmax_backward", 5},
    {"layer_norm", 8},  // sum; difference, square, sum; difference, quotient, scale, shift
    {"layer_norm_backward", 13},
    {"add_layer_norm", 9},
    {"add_layer_norm_backward", 14},
    {"layer_norm_lowered", 8},
    {"layer_norm_lowered_backward", 13},
    {"add_layer_norm_lowered", 9},
    {"add_layer_norm_lowered_backward", 14},
    {"batch_stats", 4},
    {"batch_norm", 4},
    {"batch_norm_grad", 13},
    {"update_running", 3, kNone, true},
    {"inverse_std", 3, kNone, true},
    {"embedding", 0, 0},
    {"embedding_backward", 1, 2, true},
    {"nll_rows", 1, 0},
    {"reduce_losses", 1},
    {"nll_backward", 1},
    {"cross_entropy_backward", 4},
    {"cross_entropy_rows", 4},           // maximum; difference, exp, sum
    {"cross_entropy_rows_backward", 6},  // log p from the logit (2); cross_entropy_backward (4)
    {"squared_error", 3},
    {"squared_error_backward", 3},
    {"max_pool2d", 1},
    {"avg_pool2d", 1},
    {"max_pool2d_grad", 1},
    {"avg_pool2d_grad", 1},
    {"sgd", 4, kNone, true},
    {"adam", 14, kNone, true},
    {"adam_all", 14, kNone, true},
    {"adam_clocked", 14, kNone, true},
    {"sum_of_squares", 2},
    {"clip_factor", 3},  // root, square, sum
    {"scale", 1, kNone, true},
    {"unscale", 2, kNone, true},  // test for finite, and the product
};

constexpr std::ptrdiff_t kProducts = 8;  // number of leading rules that count pairs

double unary_flop(Unary f) {
  switch (f) {
    case Unary::sigmoid:  // exp, and 1 / (1 + e^-x)
      return 4;
    case Unary::gelu_erf:
      return 5;
    case Unary::gelu_tanh:
      return 9;
    default:
      return 1;
  }
}
double binary_flop(Binary f) {
  switch (f) {
    case Binary::tanh_backward:
    case Binary::sigmoid_backward:
      return 3;
    case Binary::sqrt_backward:
      return 2;
    case Binary::gelu_erf_backward:
      return 9;
    case Binary::gelu_tanh_backward:
      return 17;
    default:
      return 1;
  }
}

double flop_of_each(std::string_view kernel, const Rule* rule, int function) {
  if (kernel == "unary") return unary_flop(static_cast<Unary>(function));
  if (kernel == "binary") return binary_flop(static_cast<Binary>(function));
  if (kernel == "scalar") return static_cast<Scalar>(function) == Scalar::pow_backward ? 3 : 1;
  return rule == nullptr ? 0 : rule->flop;
}

}  // namespace

profile::KernelWork work_of(const char* kernel, const Operands& o) {
  const auto found = std::ranges::find(kRules, std::string_view(kernel), &Rule::kernel);
  const Rule* rule = found == std::end(kRules) ? nullptr : &*found;
  const std::size_t picked = rule == nullptr ? kNone : rule->picked;
  const auto times = [&](std::size_t i) {
    return rule != nullptr && i == rule->reduced ? o.inner : 1.0;
  };
  double largest = 0;
  for (std::size_t i = 0; i < o.count; ++i)
    if (i != picked) largest = std::max(largest, times(i) * o.all[i].elements);
  profile::KernelWork work;
  for (std::size_t i = 0; i < o.count; ++i) {
    const Operand& operand = o.all[i];
    double bytes = times(i) * operand.bytes;
    if (i == picked && operand.elements > largest) bytes *= largest / operand.elements;
    const bool read_too = operand.written && ((rule != nullptr && rule->updates) || o.added);
    work.bytes += read_too ? 2 * bytes : bytes;
  }
  const bool product = found - std::begin(kRules) < kProducts;
  const double amount = product ? o.pairs : largest;
  work.flop = o.times * amount * flop_of_each(kernel, rule, o.function);
  work.bytes *= o.times;
  return work;
}

}  // namespace ringsmith::kernels
