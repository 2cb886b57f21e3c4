// Module: a tree of parameters with a forward function.
//
//   class Linear : public Module {
//     Tensor weight, bias;
//     Linear(...) { register_parameter("weight", weight, ...); }      a leaf of the tree
//     Tensor forward(const Tensor& x) override { return linear(x, weight, bias); }
//   };
//   class Block : public Module {
//     Linear up, down;
//     Block(...) { register_module("up", up); register_module("down", down); }
//   };
//
// The tree points to members, so a module can be neither copied nor moved. An assignment shares a
// parameter: head.weight = embedding.weight. Tensors are listed in PyTorch's order, on which the
// gradient buckets rely: first a module's own, then its children's in order of registration.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual Tensor forward(const Tensor& x) = 0;
  Tensor operator()(const Tensor& x) { return wrapper_ ? wrapper_(x) : forward(x); }
  // Makes operator() call `wrapper` instead of forward(), e.g. to prepare the parameters and then
  // call forward(). An empty wrapper restores operator().
  void wrap_calls(std::function<Tensor(const Tensor& x)> wrapper) { wrapper_ = std::move(wrapper); }
  // If true, a parent must use operator() instead of the parameters.
  [[nodiscard]] bool is_wrapped() const { return static_cast<bool>(wrapper_); }

  // In tree order. A tensor shared by several modules appears once, under its first name.
  [[nodiscard]] NamedTensors named_parameters() const;
  [[nodiscard]] NamedTensors named_buffers() const;
  [[nodiscard]] std::vector<Tensor> parameters() const;
  [[nodiscard]] std::vector<Tensor> buffers() const;

  // Parameters and buffers under all their names. Shares memory with the module.
  [[nodiscard]] StateDict state_dict() const;
  // Copies the values into the module. If entries are missing, unknown or misshapen, throws a
  // UsageError that names the first three, and changes nothing.
  void load_state_dict(const StateDict& state);
  void require_fits(const StateDict& state) const;  // only checks

  // Moves parameters, buffers and gradients in place: existing handles and optimizers stay valid.
  // An optimizer's state does not move, so move the model first, or load the state again.
  void to(Device device);
  // Device of the parameters, or the CPU if there are none. Throws UsageError if they are on
  // several devices.
  [[nodiscard]] Device device() const;

  // Replaces the i-th tensor of parameters() with parameters[i] wherever it is shared, and buffers
  // likewise. No values are copied, existing handles keep the old tensors, and shapes are not
  // checked. Throws UsageError unless the numbers match.
  void rebind(const std::vector<Tensor>& parameters, const std::vector<Tensor>& buffers);

  void train(bool on = true);  // this module and its descendants
  void eval() { train(false); }
  [[nodiscard]] bool training() const { return training_; }
  void zero_grad(bool set_to_none = true);
  // Calls f for the descendants first and for this module last.
  void apply(const std::function<void(Module&)>& f);

 protected:
  // `slot` must be a member of this object. A parameter requires a gradient. A buffer does not, but
  // is saved and broadcast. Throws UsageError, without registering anything, if the name or the
  // member is already registered, the name has an empty part ("", "a..b"), or two tensors could get
  // the same name ("a" and "a.b").
  void register_parameter(std::string name, Tensor& slot, Tensor value);
  void register_buffer(std::string name, Tensor& slot, Tensor value);
  void register_module(std::string name, Module& child);

 private:
  friend class EvalGuard;
  enum class Kind : std::uint8_t { parameter, buffer };
  struct Slot {
    std::string name;
    Kind kind;
    Tensor* tensor;
  };
  void require_new(const char* what, const std::string& name) const;
  void add_slot(Slot added, Tensor value);
  void collect(const std::string& prefix, Kind kind, NamedTensors& out) const;
  [[nodiscard]] NamedTensors unique(Kind kind) const;
  void rebind_slots(Kind kind, const NamedTensors& from, const std::vector<Tensor>& to);

  std::vector<Slot> slots_;
  std::vector<std::pair<std::string, Module*>> children_;
  std::function<Tensor(const Tensor&)> wrapper_;
  bool training_ = true;
};

// Number of elements of all parameters; shared ones count once.
[[nodiscard]] std::int64_t parameter_count(const Module& module);

// Puts a module and its descendants into evaluation mode. Restores the mode of each module at the
// end of the scope.
class EvalGuard {
 public:
  explicit EvalGuard(Module& module) {
    module.apply([this](Module& m) {
      if (std::exchange(m.training_, false)) trained_.push_back(&m);
    });
  }
  ~EvalGuard() {
    for (Module* m : trained_) m->training_ = true;
  }
  EvalGuard(const EvalGuard&) = delete;
  EvalGuard& operator=(const EvalGuard&) = delete;

 private:
  std::vector<Module*> trained_;  // only those that were in training mode
};

}  // namespace ringsmith
