// Shared by optimizers of shards (zero.hpp, fsdp.hpp): the keys of an optimizer's state
// (Optimizer::state_dict), and the norm of gradients that are distributed over the ranks.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/process_group.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith::sharded {

constexpr const char* kParams = "param_groups.0.params";

// "state.12.exp_avg" for 12, "exp_avg".
[[nodiscard]] std::string entry_of(std::size_t parameter, const std::string& name);
[[nodiscard]] bool is_state(const std::string& key);  // of a parameter, not a hyperparameter
// The reverse of entry_of(). Throws UsageError if there is no number.
[[nodiscard]] std::pair<std::size_t, std::string> parse_entry(const std::string& key);

// Throws UsageError: "optimizer state does not fit: ...".
[[noreturn]] void refuse_state(const std::string& why);

// Collective. Scales `mine` so that the 2-norm of all ranks' `counted` is at most max_norm, as
// clip_grad_norm_ does. Returns the norm before scaling.
double clip_norm(comm::ProcessGroup& group, const std::vector<Tensor>& counted,
                 const std::vector<Tensor>& mine, double max_norm);

// Returns the contiguous tensor as the buffer of a collective.
[[nodiscard]] comm::Buffer buffer_of(const Tensor& t);

}  // namespace ringsmith::sharded
