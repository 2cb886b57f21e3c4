// A model with hooks, for labs about gradients. It computes nothing; the driver determines which
// gradient arrives when. Parameters may be tied, frozen, or unused.
//
//     backward     g(head.weight) ... g(norm) ... g(embed) | end
//     hooks               ^              ^           ^       ^ on_backward_end, once
//                         |              |           on_gradient of each, when it is complete
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace kit {

struct Parameter {
  std::string name;
  std::vector<float> value;
  std::vector<float> grad;    // empty: no gradient yet; backward adds to it
  bool requires_grad = true;  // false: frozen, never gets a gradient
};
using Tensor = std::shared_ptr<Parameter>;

class ToyModel {
 public:
  // A tied parameter, one Tensor used by two modules, is listed twice.
  [[nodiscard]] const std::vector<Tensor>& parameters() const { return listed_; }

  // hook runs once in each backward in which the parameter gets a gradient, when the gradients of
  // all its uses have been added to .grad.
  void on_gradient(const Tensor& parameter, std::function<void()> hook) {
    hooks_.emplace_back(parameter.get(), std::move(hook));
  }
  void on_backward_end(std::function<void()> callback) { ends_.push_back(std::move(callback)); }

  // For drivers: lists a new parameter, or a tied one again.
  void list(const Tensor& parameter) { listed_.push_back(parameter); }
  // Delivers a gradient or a part of one; last: true if no further part follows.
  void arrive(const Tensor& parameter, const std::vector<float>& gradient, bool last) {
    if (parameter->grad.empty()) parameter->grad.assign(parameter->value.size(), 0.0F);
    for (std::size_t i = 0; i < gradient.size(); ++i) parameter->grad[i] += gradient[i];
    if (!last) return;
    for (const auto& [of, hook] : hooks_)
      if (of == parameter.get()) hook();
  }
  void end_backward() {
    for (const auto& callback : ends_) callback();
  }

 private:
  std::vector<Tensor> listed_;
  std::vector<std::pair<Parameter*, std::function<void()>>> hooks_;
  std::vector<std::function<void()>> ends_;
};

}  // namespace kit
