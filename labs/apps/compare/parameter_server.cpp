#include "labs/apps/compare/parameter_server.hpp"

#include <chrono>
#include <fmt/format.h>

#include "labs/apps/common/agreement.hpp"
#include "runtime/autograd/tensor_grad.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith::apps {

namespace {

comm::Buffer buffer_of(const Tensor& t) {
  return {data_of(t), Elements(static_cast<std::size_t>(t.numel())), t.dtype()};
}

}  // namespace

ParameterServer::ParameterServer(comm::ProcessGroup& group, Module& model,
                                 const MakeOptimizer& make_optimizer, std::int64_t budget)
    : group_(group), leaves_(model.parameters()), budget_(budget) {
  std::int64_t total = 0;
  for (const Tensor& p : leaves_) {
    require(p.dtype() == DType::f32,
            fmt::format("ParameterServer: a parameter is {}: train in f32", name_of(p.dtype())));
    total += p.numel();
  }
  parameters_ = zeros({total}, {DType::f32, model.device()});
  gradients_ = zeros({total}, {DType::f32, model.device()});
  std::int64_t at = 0;
  for (const Tensor& p : leaves_) {
    const Tensor place = parameters_.slice(0, at, at + p.numel()).view(p.sizes());
    place.copy_(p);
    p.set_data(place);
    set_grad_target(p, gradients_.slice(0, at, at + p.numel()).view(p.sizes()));
    at += p.numel();
  }
  group_.broadcast(buffer_of(parameters_), 0);
  pairs_.resize(static_cast<std::size_t>(group_.size()));
  for (int r = 1; r < group_.size(); ++r)
    pairs_[static_cast<std::size_t>(r)] = group_.new_group({0, r});
  if (group_.rank() != 0) return;
  served_ = parameters_.clone();
  optimizer_ = make_optimizer({served_.requires_grad_()});
  synchronize(model.device());  // the server's threads use other streams
  errors_.resize(pairs_.size());
  for (std::size_t r = 1; r < pairs_.size(); ++r)
    threads_.emplace_back([this, r] {
      try {
        const DeviceGuard on(served_.device());
        serve(*pairs_[r]);
      } catch (...) {
        errors_[r] = std::current_exception();
      }
    });
}

ParameterServer::~ParameterServer() {
  threads_.clear();  // joins them
  for (const Tensor& p : leaves_) set_grad_target(p, {});
}

ParameterServer::Answer ParameterServer::update(const Tensor& gradients, const Tensor& parameters) {
  synchronize(served_.device());  // ensures that the gradients are complete, regardless of their
                                  // stream
  const std::scoped_lock lock(mutex_);
  const bool accepted = updates_ < budget_;
  const auto begin = std::chrono::steady_clock::now();
  if (accepted) {
    served_.set_grad(gradients);
    optimizer_->step();
    ++updates_;
  }
  parameters.copy_(served_.detach());
  synchronize(served_.device());
  busy_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return {updates_, accepted};
}

// Serves one worker until the budget is used up.
void ParameterServer::serve(comm::ProcessGroup& worker) {
  const Tensor gradients = zeros(gradients_.sizes(), gradients_.options());
  const Tensor parameters = zeros(gradients_.sizes(), gradients_.options());
  for (bool more = true; more;) {
    worker.recv(buffer_of(gradients), 1);
    const Answer answer = update(gradients, parameters);
    more = answer.accepted;
    const std::vector<std::int64_t> words{answer.version, std::int64_t{more}};
    worker.send(std::span(words), 1);
    worker.send(buffer_of(parameters), 1);
    const std::scoped_lock lock(mutex_);
    bytes_ += 2 * static_cast<std::int64_t>(size_in_bytes(parameters).value);
  }
}

ParameterServer::Answer ParameterServer::ask_server() {
  if (group_.rank() == 0) return update(gradients_, parameters_);
  comm::ProcessGroup& server = *pairs_[static_cast<std::size_t>(group_.rank())];
  server.send(buffer_of(gradients_), 0);
  std::vector<std::int64_t> answer(2);
  server.recv(std::span(answer), 0);
  server.recv(buffer_of(parameters_), 0);
  return {answer[0], answer[1] != 0};
}

bool ParameterServer::push_and_pull() {
  std::int64_t at = 0;
  for (const Tensor& p : leaves_) {
    const Tensor place = gradients_.slice(0, at, at + p.numel()).view(p.sizes());
    const Tensor grad = p.grad();
    if (!grad.defined())
      place.zero_();
    else if (data_of(grad) != data_of(place))  // set by the program, not by backward
      place.copy_(grad);
    at += p.numel();
  }
  const Answer answer = ask_server();
  for (const Tensor& p : leaves_) {
    p.bump_version();
    p.set_grad({});
  }
  if (answer.accepted) staleness_.push_back(answer.version - version_ - 1);
  version_ = answer.version;
  return answer.accepted;
}

void ParameterServer::finish() {
  threads_.clear();  // joins them
  rethrow_cause(errors_);
  group_.barrier();
}

}  // namespace ringsmith::apps
