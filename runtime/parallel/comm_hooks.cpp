#include "runtime/parallel/comm_hooks.hpp"

#include <fmt/core.h>

#include "runtime/tensor/raw.hpp"

namespace ringsmith {

namespace {

bool reaches(const comm::ProcessGroup& group, Device device) {
  return device.is_cpu() || device == group.device();
}

std::string describe(const Tensor& t) {
  if (!t.defined()) return "nothing";
  return std::string(name_of(t.dtype())) + to_string(t.sizes()) + " on " + t.device().str();
}

class HookedReduction : public comm::Work {
 public:
  HookedReduction(const CommHook& hook, GradBucket bucket, std::string& fault)
      : name_(hook.name), bucket_(std::move(bucket)), future_(hook.call(bucket_)), fault_(fault) {}

  [[nodiscard]] bool is_completed() const override { return done_; }
  void wait() override {
    if (std::exchange(done_, true)) return;
    const Tensor result = future_.wait();
    const Tensor& want = bucket_.buffer;
    if (!result.defined() || result.sizes() != want.sizes() || result.options() != want.options()) {
      if (fault_.empty())
        fault_ = fmt::format(
            "communication hook '{}' returned {} for bucket {}, which is {}: return "
            "a tensor like GradBucket::buffer",
            name_, describe(result), bucket_.index, describe(want));
      return;
    }
    if (data_of(result) != data_of(want) || !result.is_contiguous()) want.copy_(result);
  }

 private:
  std::string name_;
  GradBucket bucket_;
  Future future_;
  std::string& fault_;
  bool done_ = false;
};

CommHook compress_hook(std::string name, std::shared_ptr<comm::ProcessGroup> group, DType dtype) {
  const auto travel = std::make_shared<TravelTensors>(group);
  return {std::move(name), [group = std::move(group), travel, dtype](const GradBucket& bucket) {
            const Tensor small =
                travel->get(bucket.index, bucket.buffer.numel(), {dtype, bucket.buffer.device()});
            small.copy_(bucket.buffer);
            return all_reduce(group, small, comm::ReduceOp::avg)
                .then([buffer = bucket.buffer](const Tensor& sum) {
                  buffer.copy_(sum);
                  return buffer;
                });
          }};
}

}  // namespace

Future::Future(comm::WorkPtr work, Tensor value)
    : wait_([work = std::move(work), value = std::move(value)] {
        work->wait();
        return value;
      }) {}

Future Future::then(std::function<Future(const Tensor&)> next) const {
  return Future([before = wait_, next = std::move(next)] { return next(before()).wait(); });
}

comm::WorkPtr run_hook(const CommHook& hook, GradBucket bucket, std::string& fault) {
  return std::make_shared<HookedReduction>(hook, std::move(bucket), fault);
}

CommHook allreduce_hook(std::shared_ptr<comm::ProcessGroup> group) {
  return {"allreduce", [group = std::move(group)](const GradBucket& bucket) {
            raw::scalar_into(raw::Scalar::div, bucket.buffer, group->size(), "allreduce_hook");
            return all_reduce(group, bucket.buffer, comm::ReduceOp::sum);
          }};
}

CommHook fp16_compress_hook(std::shared_ptr<comm::ProcessGroup> group) {
  return compress_hook("fp16_compress", std::move(group), DType::f16);
}

CommHook bf16_compress_hook(std::shared_ptr<comm::ProcessGroup> group) {
  return compress_hook("bf16_compress", std::move(group), DType::bf16);
}

CommHook noop_hook() {
  return {"noop", [](const GradBucket& bucket) { return Future(bucket.buffer); }};
}

Future all_reduce(const std::shared_ptr<comm::ProcessGroup>& group, const Tensor& data,
                  comm::ReduceOp op) {
  const auto buffer_of = [](const Tensor& t) {
    return comm::Buffer(data_of(t), Elements(static_cast<std::size_t>(t.numel())), t.dtype());
  };
  if (reaches(*group, data.device())) {
    const comm::Buffer buffer = buffer_of(data);
    return {group->all_reduce_async(buffer, buffer, op), data};
  }
  return Future([=] {
    const Tensor host = data.cpu();
    const comm::Buffer buffer = buffer_of(host);
    group->all_reduce(buffer, buffer, op);
    data.copy_(host);
    return data;
  });
}

Tensor TravelTensors::get(int number, std::int64_t count, TensorOptions options) {
  Tensor& t = tensors_[number];
  if (t.defined() && t.numel() == count && t.options() == options) return t;
  if (reaches(*group_, options.device)) {
    const Bytes size = bytes_of(Elements(static_cast<std::size_t>(count)), size_of(options.dtype));
    const auto memory = group_->allocate_on(options.device, size);
    t = Tensor::from_storage(Storage::adopt(memory->data(), memory->size(), memory, options.device),
                             {count}, {1}, 0, options.dtype);
  } else {
    t = Tensor::empty({count}, options);
  }
  return t;
}

}  // namespace ringsmith
