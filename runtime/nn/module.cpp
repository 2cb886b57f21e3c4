#include "runtime/nn/module.hpp"

#include <algorithm>
#include <fmt/core.h>

#include "runtime/base/error.hpp"

namespace ringsmith {

// The names "a" and "a.b" could give two tensors the name "a.b", and a checkpoint would lose one.
void Module::require_new(const char* what, const std::string& name) const {
  const auto refuse = [&](const std::string& why) {
    throw UsageError(fmt::format("register_{}(\"{}\"): {}", what, name, why));
  };
  if (('.' + name + '.').find("..") != std::string::npos)
    refuse("a name, and each part of it between dots, needs at least one character");
  const auto below = [](const std::string& longer, const std::string& other) {
    return longer.starts_with(other + '.');
  };
  const auto check = [&](const std::string& taken) {
    if (name == taken) refuse("the module already has this name; give each entry its own");
    if (below(name, taken) || below(taken, name))
      refuse("names inside it could equal those of '" + taken + "'; choose a name without dots");
  };
  for (const Slot& slot : slots_) check(slot.name);
  for (const auto& [taken, child] : children_) check(taken);
}

void Module::add_slot(Slot added, Tensor value) {
  require_new(added.kind == Kind::parameter ? "parameter" : "buffer", added.name);
  for (const Slot& slot : slots_)
    require(slot.tensor != added.tensor, "'" + added.name + "' and '" + slot.name +
                                             "' are registered with one member; give each its own");
  if (added.kind == Kind::parameter) value.requires_grad_();
  *added.tensor = std::move(value);
  slots_.push_back(std::move(added));
}

void Module::register_parameter(std::string name, Tensor& slot, Tensor value) {
  add_slot({std::move(name), Kind::parameter, &slot}, std::move(value));
}

void Module::register_buffer(std::string name, Tensor& slot, Tensor value) {
  add_slot({std::move(name), Kind::buffer, &slot}, std::move(value));
}

void Module::register_module(std::string name, Module& child) {
  require_new("module", name);
  child.apply([&](Module& m) {
    require(&m != this, "register_module(\"" + name + "\"): a module cannot contain itself");
  });
  children_.emplace_back(std::move(name), &child);
}

void Module::collect(const std::string& prefix, Kind kind, NamedTensors& out) const {
  for (const Slot& slot : slots_)
    if (slot.kind == kind && slot.tensor->defined())
      out.emplace_back(prefix + slot.name, *slot.tensor);
  for (const auto& [name, child] : children_) child->collect(prefix + name + ".", kind, out);
}

NamedTensors Module::unique(Kind kind) const {
  NamedTensors all;
  collect("", kind, all);
  NamedTensors out;
  for (auto& named : all)
    if (std::ranges::none_of(out,
                             [&](const auto& seen) { return seen.second.is_same(named.second); }))
      out.push_back(std::move(named));
  return out;
}

NamedTensors Module::named_parameters() const { return unique(Kind::parameter); }
NamedTensors Module::named_buffers() const { return unique(Kind::buffer); }

namespace {

std::vector<Tensor> tensors_of(const NamedTensors& named) {
  std::vector<Tensor> out;
  out.reserve(named.size());
  for (const auto& [name, tensor] : named) out.push_back(tensor);
  return out;
}

}  // namespace

std::vector<Tensor> Module::parameters() const { return tensors_of(named_parameters()); }
std::vector<Tensor> Module::buffers() const { return tensors_of(named_buffers()); }

StateDict Module::state_dict() const {
  NamedTensors all;
  collect("", Kind::parameter, all);
  collect("", Kind::buffer, all);
  StateDict out;
  for (const auto& [name, tensor] : all) out[name] = tensor.detach();
  return out;
}

void Module::load_state_dict(const StateDict& state) {
  require_fits(state);
  for (const auto& [name, tensor] : state_dict()) tensor.copy_(state.at(name));
}

void Module::require_fits(const StateDict& state) const {
  const StateDict mine = state_dict();
  constexpr int kNamed = 3;  // faults named in the message; a wrong model has hundreds
  int found = 0;
  std::string faults;
  const auto fault = [&](const std::string& what) {
    if (++found <= kNamed) faults += (faults.empty() ? "" : "; ") + what;
  };
  for (const auto& [name, tensor] : mine) {
    const auto given = state.find(name);
    if (given == state.end())
      fault("'" + name + "' is missing");
    else if (given->second.sizes() != tensor.sizes())
      fault("'" + name + "' is " + to_string(given->second.sizes()) + ", the model has " +
            to_string(tensor.sizes()));
  }
  for (const auto& [name, tensor] : state)
    if (mine.count(name) == 0) fault("'" + name + "' is unknown to the model");
  if (found > kNamed) faults += "; and " + std::to_string(found - kNamed) + " more";
  require(found == 0, "state does not fit the model: " + faults);
}

void Module::to(Device device) {
  require_device(device);
  for (const Tensor& t : parameters()) t.move_to(device);
  for (const Tensor& t : buffers()) t.move_to(device);
}

Device Module::device() const {
  const NamedTensors all = named_parameters();
  if (all.empty()) return Device::cpu();
  const auto& [first, tensor] = all.front();
  for (const auto& [name, other] : all)
    if (other.device() != tensor.device())
      throw UsageError(fmt::format("the model is on several devices: '{}' on {}, '{}' on {}", first,
                                   tensor.device().str(), name, other.device().str()));
  return tensor.device();
}

void Module::rebind(const std::vector<Tensor>& parameters, const std::vector<Tensor>& buffers) {
  const NamedTensors old_parameters = named_parameters(), old_buffers = named_buffers();
  require(parameters.size() == old_parameters.size() && buffers.size() == old_buffers.size(),
          "rebind: the module has " + std::to_string(old_parameters.size()) + " parameters and " +
              std::to_string(old_buffers.size()) + " buffers, but got " +
              std::to_string(parameters.size()) + " and " + std::to_string(buffers.size()));
  apply([&](Module& m) {
    m.rebind_slots(Kind::parameter, old_parameters, parameters);
    m.rebind_slots(Kind::buffer, old_buffers, buffers);
  });
}

void Module::rebind_slots(Kind kind, const NamedTensors& from, const std::vector<Tensor>& to) {
  for (const Slot& slot : slots_) {
    if (slot.kind != kind || !slot.tensor->defined()) continue;
    const auto old = std::ranges::find_if(
        from, [&](const auto& named) { return named.second.is_same(*slot.tensor); });
    if (old != from.end()) *slot.tensor = to[static_cast<std::size_t>(old - from.begin())];
  }
}

void Module::train(bool on) {
  apply([on](Module& m) { m.training_ = on; });
}

void Module::zero_grad(bool set_to_none) {
  for (const Tensor& p : parameters()) {
    if (set_to_none)
      p.set_grad({});
    else if (const Tensor grad = p.grad(); grad.defined())
      grad.zero_();
  }
}

void Module::apply(const std::function<void(Module&)>& f) {
  for (const auto& [name, child] : children_) child->apply(f);
  f(*this);
}

std::int64_t parameter_count(const Module& module) {
  std::int64_t n = 0;
  for (const Tensor& p : module.parameters()) n += p.numel();
  return n;
}

}  // namespace ringsmith
