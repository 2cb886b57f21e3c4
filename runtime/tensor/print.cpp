// A tensor as text, for people: nested brackets, long dimensions cut in the middle.
#include <cstdio>

#include "kernels/copy.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

namespace {

constexpr std::int64_t kShowAll = 1000;  // elements; larger tensors are cut
constexpr std::int64_t kEdge = 3;        // items shown at either end of a cut dimension

void append_value(std::string& text, const Tensor& t, std::int64_t offset) {
  char buffer[32];
  visit_dtype(t.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T value = t.data<T>()[offset];
    if constexpr (std::is_same_v<T, bool>)
      std::snprintf(buffer, sizeof buffer, "%s", value ? "true" : "false");
    else if constexpr (std::is_integral_v<T>)
      std::snprintf(buffer, sizeof buffer, "%lld", static_cast<long long>(value));
    else
      std::snprintf(buffer, sizeof buffer, "%.6g", kernels::convert<double>(value));
  });
  text += buffer;
}

void append(std::string& text, const Tensor& t, std::size_t d, std::int64_t offset, bool cut) {
  if (d == t.sizes().size()) return append_value(text, t, offset);
  const std::int64_t n = t.sizes()[d];
  text += '[';
  for (std::int64_t i = 0; i < n; ++i) {
    if (i > 0) text += ", ";
    if (cut && n > 2 * kEdge && i == kEdge) {
      text += "..., ";
      i = n - kEdge;
    }
    append(text, t, d + 1, offset + i * t.strides()[d], cut);
  }
  text += ']';
}

}  // namespace

std::string Tensor::str() const {
  if (!defined()) return "undefined";
  std::string text;
  append(text, cpu(), 0, 0, numel() > kShowAll);
  text += " " + std::string(name_of(dtype())) + " " + to_string(sizes());
  return device().is_cpu() ? text : text + " " + device().str();
}

}  // namespace ringsmith
