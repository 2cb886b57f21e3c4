// Gradients that do not arrive in a backward: what is reduced in their place, and the ranks' common
// verdict.
//
//   a parameter got no gradient ...   its slot is reduced with      afterwards its .grad is
//   on this rank                      its old .grad, or zeros       the average
//   on every rank                     its old .grad, or zeros       unchanged
//
// A rank whose forward took another path through the model still reduces every bucket, so that no
// peer waits for it forever. After the last bucket the ranks exchange which parameters had
// gradients (UsageMap in agreement.hpp). All reach the same verdict: an error that names the
// parameters, or, with find_unused_parameters or static_graph, the table above.
//
// A gradient that is known to be missing does not delay its bucket until the end of backward.
// find_unused_parameters searches the graph after each forward for parameters on which the outputs
// do not depend; a static graph (static_graph.hpp) learns the unused parameters in its first
// backward.
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

  // outputs: the outputs of a forward. first: true for the first forward since the last backward.
  void after_forward(const std::vector<Tensor>& outputs, bool first);

  // A gradient has arrived, in this backward or in an earlier one without synchronisation.
  void mark(int parameter) { usage_.mark(parameter); }
  // For a rank without inputs: prevents this rank's missing gradients from being reported as an
  // error.
  void pretend_all_used();
  [[nodiscard]] bool used(int parameter) const;  // on this rank, at the last exchange

  // ---- in a synchronised backward ----
  void begin_backward() {
    if (graph_) graph_->begin();
  }
  // True if the parameter is known to get no gradient in this backward.
  [[nodiscard]] bool known(int parameter) const;
  // Records that a gradient has arrived. Returns false if a static graph expects more gradients of
  // the parameter, or has not learnt their number yet.
  [[nodiscard]] bool is_complete(int parameter) { return !graph_ || graph_->arrive(parameter); }
  void second_gradient(int parameter);  // a gradient after the last: a fault
  void provide(int parameter);
  void end_graph(std::uint64_t backward) {
    if (graph_) fault_ = graph_->end(buckets_.names(), backward);
  }
  // The fault that exchange() throws on every rank; empty: none.
  [[nodiscard]] std::string& fault() { return fault_; }

  // ---- after the last bucket ----
  // Collective; throws the same errors as UsageMap::exchange().
  void exchange(std::uint64_t forwards) { usage_.exchange(forwards, fault_); }
  // Sets .grad where gradients were missing, or throws UsageError if none may be missing.
  void settle(std::uint64_t backward);

 private:
  [[nodiscard]] bool allowed() const { return find_unused_ || graph_; }

  GradientBuckets& buckets_;
  bool find_unused_;
  UsageMap usage_;                    // gradients since the last synchronisation
  std::optional<StaticGraph> graph_;  // with static_graph
  std::vector<bool> unreachable_;     // by parameter: from the outputs, with find_unused
  std::vector<Tensor> kept_;          // by parameter: old .grad, in case no rank has a new one
  std::string fault_;
};

}  // namespace ringsmith
