#include "runtime/parallel/beyond/sharded_state.hpp"

#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <span>
#include <string_view>

#include "kernels/optim.hpp"
#include "runtime/tensor/raw.hpp"

namespace ringsmith::sharded {

std::string entry_of(std::size_t parameter, const std::string& name) {
  return fmt::format("state.{}.{}", parameter, name);
}

bool is_state(const std::string& key) { return key.rfind("state.", 0) == 0; }

std::pair<std::size_t, std::string> parse_entry(const std::string& key) {
  constexpr std::string_view kState = "state.";
  std::size_t number = 0;
  const char* const end = key.data() + key.size();
  const auto [stop, error] = std::from_chars(key.data() + kState.size(), end, number);
  if (error != std::errc() || stop == end || *stop != '.')
    throw UsageError("optimizer state does not fit: '" + key + "' is not an entry of a parameter");
  return {number, std::string(stop + 1, end)};
}

void refuse_state(const std::string& why) {
  throw UsageError("optimizer state does not fit: " + why +
                   "; load the state of an optimizer of the same kind and model");
}

double clip_norm(comm::ProcessGroup& group, const std::vector<Tensor>& counted,
                 const std::vector<Tensor>& mine, double max_norm) {
  require(max_norm >= 0,
          fmt::format("clip_grad_norm: max_norm must be 0 or more, got {}", max_norm));
  double squares = 0;
  for (const Tensor& grad : counted) {
    const Tensor sum = Tensor::empty({1}, {DType::f64, grad.device()});
    raw::visit_arithmetic(grad.dtype(), "clip_grad_norm", [&]<class T>(TypeTag<T>) {
      kernels::sum_of_squares(grad.device(), grad.kernel_span<T>(), sum.kernel_span<double>());
    });
    squares += sum.item<double>();
  }
  std::vector<double> all{squares};
  group.all_reduce(std::span<double>(all));
  const double norm = std::sqrt(all[0]);
  const double factor = max_norm / (norm + 1e-6);  // as in clip_grad_norm_: NaN is kept
  for (const Tensor& grad : mine)
    raw::scalar_into(raw::Scalar::mul, grad, factor > 1 ? 1 : factor, "clip_grad_norm");
  return norm;
}

comm::Buffer buffer_of(const Tensor& t) {
  return {data_of(t), Elements(static_cast<std::size_t>(t.numel())), t.dtype()};
}

}  // namespace ringsmith::sharded
