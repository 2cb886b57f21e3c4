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
// The tree points at members, so a module can be neither copied nor moved, and sharing a parameter
// is an assignment: head.weight = embedding.weight. Everything walks the tree in the same order,
// own parameters first, then children as registered: PyTorch's order, and that of all buckets.
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
  Tensor operator()(const Tensor& x) { return forward(x); }

  // Tree order; a tensor that several modules share appears once, under its first name.
  [[nodiscard]] NamedTensors named_parameters() const;
  [[nodiscard]] NamedTensors named_buffers() const;
  [[nodiscard]] std::vector<Tensor> parameters() const;
  [[nodiscard]] std::vector<Tensor> buffers() const;

  // Parameters and buffers under all their names; shares memory with the module.
  [[nodiscard]] StateDict state_dict() const;
  // Copies the values in. UsageError naming the first missing, unknown or misshapen entries; then
  // nothing has been changed.
  void load_state_dict(const StateDict& state);

  // Moves parameters, buffers and gradients, in place: handles and optimizers made before stay
  // valid (an optimizer's state does not move: load it anew, or move the model first).
  void to(Device device);
  // Where the parameters are; the CPU without any. UsageError if they are on several devices.
  [[nodiscard]] Device device() const;

  // Puts other tensor objects into the slots: what was the i-th of parameters() becomes the i-th of
  // these wherever it is shared, and buffers alike. Values are not copied, handles made before keep
  // what they were, and shapes are the caller's affair. UsageError unless there is one for each.
  void rebind(const std::vector<Tensor>& parameters, const std::vector<Tensor>& buffers);

  void train(bool on = true);  // this module and all below it
  void eval() { train(false); }
  [[nodiscard]] bool training() const { return training_; }
  void zero_grad(bool set_to_none = true);
  // Children before their parents, this module last.
  void apply(const std::function<void(Module&)>& f);

 protected:
  // `slot` must be a member of this object. A parameter requires a gradient; a buffer does not, and
  // is state that is saved and broadcast. UsageError, and nothing is registered, if the name or the
  // member is taken, the name has an empty part ("", "a..b"), or it could give two tensors one name
  // ("a" and "a.b"). One module may be the child of several.
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
  bool training_ = true;
};

// Number of elements of all parameters, shared ones counted once.
[[nodiscard]] std::int64_t parameter_count(const Module& module);

// Puts a module and all below it into evaluation mode, and each back into what it was when the
// scope ends.
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
  std::vector<Module*> trained_;  // not those that were in evaluation mode before
};

}  // namespace ringsmith
