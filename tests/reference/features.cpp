#include "tests/reference/features.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>

#include "runtime/nn/layers.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/beyond/post_local_sgd.hpp"
#include "runtime/parallel/beyond/power_sgd.hpp"
#include "runtime/parallel/beyond/sync_batch_norm.hpp"
#include "runtime/parallel/beyond/zero.hpp"
#include "runtime/parallel/ddp.hpp"
#include "tests/reference/compare.hpp"
#include "tests/reference/data.hpp"
#include "tests/reference/strict.hpp"

namespace ringsmith::reference {

namespace {

using nlohmann::json;

class FeatureModel : public Module {
 public:
  virtual Tensor loss(const Tensor& x, const Tensor& y) const = 0;  // of forward()'s result
};

class Mlp : public FeatureModel {
 public:
  explicit Mlp(const json& run, int rank)
      : first_(run.at("in"), run.at("hidden")), head_(run.at("hidden"), run.at("out")) {
    register_module("first", first_);
    register_module("head", head_);
    if (!run.contains("extra_on")) return;
    extra_.emplace(run.at("hidden").get<std::int64_t>(), run.at("out").get<std::int64_t>());
    register_module("extra", *extra_);
    const auto on = run.at("extra_on").get<std::vector<int>>();
    uses_extra_ = std::ranges::find(on, rank) != on.end();
  }
  Tensor forward(const Tensor& x) override {
    const Tensor h = relu(first_(x));
    return uses_extra_ ? head_(h) + (*extra_)(h) : head_(h);
  }
  Tensor loss(const Tensor& x, const Tensor& y) const override { return mse_loss(x, y); }

 private:
  Linear first_, head_;
  std::optional<Linear> extra_;
  bool uses_extra_ = false;
};

class ConvNet : public FeatureModel {
 public:
  explicit ConvNet(const json& run)
      : sum_over_(run.contains("alone") ? run.at("batch").get<int>() : 0) {
    const auto size = (run.at("size").get<std::int64_t>() - 3) / 2 + 1;
    net_.add<Conv2d>(run.at("channels").get<std::int64_t>(), 4, Pair{3, 3},
                     Conv2dOptions{.padding = {1, 1}});
    net_.add<BatchNorm2d>(4);
    net_.add<ReLU>();
    net_.add<Conv2d>(4, 3, Pair{3, 3}, Conv2dOptions{.stride = {2, 2}});
    net_.add<BatchNorm2d>(3);
    net_.add<ReLU>();
    net_.add<Flatten>();
    net_.add<Linear>(3 * size * size, run.at("classes").get<std::int64_t>());
    register_module("net", net_);
  }
  Tensor forward(const Tensor& x) override { return net_(x); }
  Tensor loss(const Tensor& x, const Tensor& y) const override {
    if (sum_over_ == 0) return cross_entropy(x, y);
    return mul(cross_entropy(x, y, Reduction::sum), 1.0 / sum_over_);
  }

 private:
  Sequential net_;
  int sum_over_;
};

std::unique_ptr<FeatureModel> make_model(const json& run, int rank) {
  if (run.at("model") == "mlp") return std::make_unique<Mlp>(run, rank);
  require(run.at("model") == "convnet", "features: another model than this test knows");
  return std::make_unique<ConvNet>(run);
}

std::unique_ptr<Optimizer> make_optimizer(const json& o, const std::vector<Tensor>& parameters) {
  if (o.at("name") == "sgd")
    return std::make_unique<SGD>(parameters,
                                 SGDOptions{.lr = o.at("lr"), .momentum = o.at("momentum")});
  require(o.at("name") == "adamw", "features: another optimizer than this test knows");
  return std::make_unique<AdamW>(
      parameters, AdamOptions{.lr = o.at("lr"), .weight_decay = o.at("weight_decay")});
}

CommHook make_hook(const json& h, const std::shared_ptr<comm::ProcessGroup>& group) {
  const auto name = h.at("name").get<std::string>();
  if (name == "none") return {};
  if (name == "allreduce") return allreduce_hook(group);
  if (name == "fp16_compress") return fp16_compress_hook(group);
  if (name == "post_local_sgd") return post_local_sgd_hook(group, h.at("start"));
  require(name == "power_sgd", "features: another hook than this test knows");
  return power_sgd_hook(std::make_shared<PowerSgdState>(
      group, PowerSgdOptions{.matrix_approximation_rank = h.at("rank"),
                             .start_powersgd_iter = h.at("start"),
                             .use_error_feedback = h.at("error_feedback"),
                             .warm_start = h.at("warm_start")}));
}

struct Data {
  Tensor x, y;
  explicit Data(const json& run) {
    const std::int64_t n = run.at("rows");
    if (run.at("model") == "mlp") {
      x = tensor_f32(run.at("x"), {n, run.at("in")});
      y = tensor_f32(run.at("y"), {n, run.at("out")});
    } else {
      x = tensor_f32(run.at("x"), {n, run.at("channels"), run.at("size"), run.at("size")});
      y = from_vector(run.at("y").get<std::vector<std::int64_t>>());
    }
  }
  [[nodiscard]] static Tensor take(const Tensor& t, const std::vector<std::int64_t>& rows) {
    Shape sizes = t.sizes();
    sizes[0] = std::ssize(rows);
    const Tensor out = Tensor::empty(sizes, t.options());
    for (std::int64_t i = 0; i < sizes[0]; ++i)
      out.slice(0, i, i + 1)
          .copy_(
              t.slice(0, rows[static_cast<std::size_t>(i)], rows[static_cast<std::size_t>(i)] + 1));
    return out;
  }
};

DdpOptions ddp_options(const json& run) {
  constexpr double kMiB = 1 << 20;
  DdpOptions options;
  options.first_bucket_mb = run.at("caps").at(0).get<double>() / kMiB;
  options.bucket_cap_mb = run.at("caps").at(1).get<double>() / kMiB;
  options.static_graph = run.value("static_graph", false);
  options.algorithm = comm::Algorithm::gloo_ring;
  return options;
}

class Replay {
 public:
  Replay(const json& run, const std::shared_ptr<comm::ProcessGroup>& group)
      : run_(run),
        rank_(static_cast<std::size_t>(group->rank())),
        device_(group->device()),
        tolerance_(run_tolerance(run, device_)),
        data_(run),
        model_(make_model(run, group->rank())) {
    require(group->size() == run.at("world"), "this run is for another number of ranks");
    const auto parameters = model_->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i)  // every rank starts with different values
      parameters[i].detach().copy_(
          tensor_f32(run.at("init").at(rank_).at(i), parameters[i].sizes()));
    model_->to(device_);
    if (run.contains("alone")) convert_sync_batchnorm(*model_, group);
    ddp_.emplace(*model_, group, ddp_options(run));
    if (run.contains("hook"))
      if (CommHook hook = make_hook(run.at("hook"), group); hook.call)
        ddp_->register_comm_hook(std::move(hook));
    const auto make = [&](const std::vector<Tensor>& p) {
      return make_optimizer(run.at("optimizer"), p);
    };
    if (run.contains("zero"))
      zero_.emplace(*ddp_, make, ZeroGradients::all_reduced);
    else
      optimizer_ = make(model_->parameters());
    if (run.contains("local_sgd"))
      averager_.emplace(group, run.at("local_sgd").at("period"),
                        run.at("local_sgd").at("warmup_steps"));
  }

  std::string run() {
    if (run_.contains("join")) {
      ddp_->join([&] { train(); }, {.divide_by_initial_world_size =
                                        run_.at("join").at("divide_by_initial_world_size")});
      compare("after join()", run_.at("end"), model_->named_parameters());
    } else {
      train();
    }
    if (run_.contains("logging")) compare_logging();
    return complaint_;
  }

 private:
  void train() {
    int number = 0;
    for (const json& step : run_.at("steps")) {
      const auto mine = step.at("micro").at(rank_).get<std::vector<std::vector<std::int64_t>>>();
      if (mine.empty()) return;
      const std::string at = fmt::format("step {}", number++);
      zero_ ? zero_->zero_grad() : optimizer_->zero_grad();
      for (std::size_t k = 0; k < mine.size(); ++k) {
        const auto micro_step = [&] { return backward(mine[k], mine.size()); };
        const float loss = k + 1 == mine.size() ? micro_step() : without_sync(micro_step);
        note(fmt::format("{}.{}, loss", at, k),
             complaint(scalar(loss), scalar(step.at("loss").at(rank_).at(k).get<float>())));
      }
      zero_ ? zero_->step() : optimizer_->step();
      if (averager_) averager_->average_parameters(model_->parameters());
      const json& params = step.at("params");
      compare("after " + at, averager_ ? params.at(rank_) : params, model_->named_parameters());
      if (step.contains("buffers"))
        compare("after " + at, step.at("buffers").at(rank_), model_->named_buffers());
    }
  }

  float backward(const std::vector<std::int64_t>& rows, std::size_t micro_steps) {
    const Tensor x = Data::take(data_.x, rows).to(device_), y = Data::take(data_.y, rows);
    const Tensor mean = model_->loss(ddp_->forward(x), y.to(device_));
    const Tensor loss =
        micro_steps == 1 ? mean : div(mean, scalar(static_cast<double>(micro_steps)).to(device_));
    loss.backward();
    return loss.item<float>();
  }

  template <class F>
  float without_sync(const F& f) {
    const auto local = ddp_->no_sync();
    return f();
  }

  [[nodiscard]] std::string complaint(const Tensor& got, const Tensor& want) const {
    if (tolerance_ == 0) return bit_difference(got, want);
    return difference(got, want, tolerance_ * std::max(largest_magnitude(want), 1e-3));
  }
  void compare(const std::string& when, const json& want, const NamedTensors& got) {
    require(want.size() == got.size(), "features: another number of tensors than in the run");
    for (std::size_t i = 0; i < got.size(); ++i) {
      const Tensor t = got[i].second.cpu().to(DType::f32);
      note(fmt::format("{}, {}", when, got[i].first),
           complaint(t, tensor_f32(want.at(i), t.sizes())));
    }
  }
  void note(const std::string& what, const std::string& why) {
    if (complaint_.empty() && !why.empty())
      complaint_ = fmt::format("rank {}, {}: {}", rank_, what, why);
  }

  // Compares the entries that exist in both libraries with the same meaning.
  void compare_logging() {
    const LoggingData mine = ddp_->logging_data();
    const json& theirs = run_.at("logging").at(rank_);
    for (const char* name :
         {"world_size", "rank", "num_parameter_tensors", "total_parameter_size_bytes",
          "bucket_cap_bytes", "broadcast_buffers", "find_unused_parameters", "static_graph",
          "has_rebuilt_buckets", "bucket_sizes", "rebuilt_bucket_sizes",
          "rebuilt_per_bucket_param_indices", "prev_iteration_grad_ready_order_indices",
          "unused_parameter_size"}) {
      const json entry = theirs.value(name, json(0));  // PyTorch omits entries that were never set
      const std::string want = entry.is_string()    ? entry.get<std::string>()
                               : entry.is_boolean() ? (entry.get<bool>() ? "1" : "0")
                                                    : std::to_string(entry.get<std::int64_t>());
      const auto found = std::ranges::find(mine, name, &LoggingData::value_type::first);
      const std::string got = found == mine.end() ? "nothing" : found->second;
      note("logging data", got == want ? "" : fmt::format("{}: {}, expected {}", name, got, want));
    }
  }

  const json& run_;
  std::size_t rank_;
  Device device_;
  double tolerance_;
  Data data_;
  std::unique_ptr<FeatureModel> model_;
  std::optional<DistributedDataParallel> ddp_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<ZeroRedundancyOptimizer> zero_;  // used instead of optimizer_ in ZeRO runs
  std::optional<PeriodicModelAverager> averager_;
  std::string complaint_;
};

}  // namespace

double run_tolerance(const json& run, Device device) {
  const std::string hook = run.contains("hook") ? run.at("hook").at("name") : "none";
  // Norms and products of factors are summed in a different order from PyTorch's, and the
  // orthogonalisation amplifies the previous step's rounding to a few times 1e-5.
  if (hook == "power_sgd") return 1e-4;
  // The reference is a single process, which normalises and sums the whole batch; here ranks
  // combine partial sums. In backward, the nearly cancelling terms of dx are rounded separately.
  if (run.contains("alone")) return 2e-5;
  if (device.is_cpu()) return 0;
  // A device sums in another order. In f16, a sum near a tie may be rounded the other way, which
  // changes a normal gradient by at most 2^-10 of its value.
  return hook == "fp16_compress" ? 1e-3 : 2e-5;
}

std::string replay_feature(const json& run, const std::shared_ptr<comm::ProcessGroup>& group) {
  return Replay(run, group).run();
}

}  // namespace ringsmith::reference
