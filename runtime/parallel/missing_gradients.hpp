// Gradients that do not arrive in a backward: the values that are reduced in their place, and the
// verdict of all ranks.
//
//   a parameter got no gradient ...   its slot is reduced with      afterwards its .grad is
//   on this rank                      its old .grad, or zeros       the average
//   on every rank                     its old .grad, or zeros       unchanged
//
// A rank whose forward took another path through the model still reduces every bucket, so that no
// peer waits for it forever. After the last bucket the ranks exchange which parameters had
// gradients (UsageMap in agreement.hpp), and all decide the same in the same step: an error that
// names the parameters, or with find_unused_parameters or static_graph the table above.
//
// Gradients that are known to be missing do not delay their bucket until the end of backward:
// find_unused_parameters searches the graph after each forward for parameters that it does not
// reach, and a static graph (static_graph.hpp) has learnt them in its first backward.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/parallel/agreement.hpp"
#include "runtime/parallel/gradient_buckets.hpp"
#include "runtime/parallel/static_graph.hpp"

namespace ringsmith {

class MissingGradients {
 public:
  MissingGradients(GradientBuckets& buckets, bool find_unused, bool static_graph);

  // A forward with these outputs precedes the backward; first: no other does since the last one.
  void after_forward(const std::vector<Tensor>& outputs, bool first);

  // A gradient has arrived, in this backward or in an earlier one that was not synchronised.
  void mark(int parameter) { usage_.mark(parameter); }
  // For a rank without inputs: where a missing gradient is an error, none is missing here.
  void pretend_all_used();
  [[nodiscard]] bool used(int parameter) const;  // on this rank, at the last exchange

  // ---- in a synchronised backward ----
  void begin_backward() {
    if (graph_) graph_->begin();
  }
  // True if it is known that no gradient of the parameter will arrive.
  [[nodiscard]] bool known(int parameter) const;
  // A gradient of the parameter has arrived. False if a static graph expects more of them, or does
  // not know yet.
  [[nodiscard]] bool is_complete(int parameter) { return !graph_ || graph_->arrive(parameter); }
  void second_gradient(int parameter);  // after a complete one: a fault
  // Fills the slot of a parameter that gets no gradient in this backward.
  void provide(int parameter);
  void end_graph(std::uint64_t backward) {
    if (graph_) fault_ = graph_->end(buckets_.names(), backward);
  }
  // This rank's fault, thrown on every rank by exchange(); empty: none.
  [[nodiscard]] std::string& fault() { return fault_; }

  // ---- after the last bucket ----
  // Collective; throws as UsageMap::exchange() does.
  void exchange(std::uint64_t forwards) { usage_.exchange(forwards, fault_); }
  // Gives .grad its final value where gradients were missing; UsageError if they must not be.
  void settle(std::uint64_t backward);

 private:
  [[nodiscard]] bool allowed() const { return find_unused_ || graph_; }

  GradientBuckets& buckets_;
  bool find_unused_;
  UsageMap usage_;                    // gradients since the last synchronisation
  std::optional<StaticGraph> graph_;  // with static_graph
  std::vector<bool> unreachable_;     // by parameter: from the outputs, with find_unused
  std::vector<Tensor> kept_;          // by parameter: old .grad, if possibly unused by all
  std::string fault_;
};

}  // namespace ringsmith
