#include "runtime/autograd/function.hpp"

#include <utility>

namespace ringsmith {

SavedTensor::SavedTensor(const Tensor& t)
    : tensor_(t.defined() ? t.detach() : Tensor()), version_(t.defined() ? t.version() : 0) {}

const Tensor& SavedTensor::get(const std::string& function) const {
  if (released_)
    throw Error(function +
                ": its saved tensors were freed by an earlier backward: call backward once, or "
                "with retain_graph");
  if (tensor_.defined() && tensor_.version() != version_)
    throw Error(function + ": a tensor of shape " + to_string(tensor_.sizes()) +
                " that backward needs was modified in place after forward (it was at version " +
                std::to_string(version_) + ", now at " + std::to_string(tensor_.version()) + ")");
  return tensor_;
}

void SavedTensor::release() {
  tensor_ = Tensor();
  released_ = true;
}

namespace {

class RecordedNode : public Node {
 public:
  RecordedNode(const char* name, const std::vector<Tensor>& saved, BackwardFunction backward)
      : name_(name), saved_(saved.begin(), saved.end()), backward_(std::move(backward)) {}

  std::vector<Tensor> apply(std::vector<Tensor> grads) override {
    if (!grads[0].defined()) return std::vector<Tensor>(edges.size());
    return backward_(Saved(*this, saved_), std::move(grads[0]));
  }
  [[nodiscard]] std::string name() const override { return name_; }
  void release() override {
    for (SavedTensor& t : saved_) t.release();
  }

 private:
  const char* name_;
  std::vector<SavedTensor> saved_;
  BackwardFunction backward_;
};

}  // namespace

void record(const char* name, const std::vector<Tensor>& inputs, Tensor& output,
            const std::vector<Tensor>& saved, BackwardFunction backward) {
  if (!needs_graph(inputs)) return;
  connect(std::make_shared<RecordedNode>(name, saved, std::move(backward)), inputs, output);
}

}  // namespace ringsmith
