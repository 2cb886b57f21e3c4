#include "runtime/parallel/data_parallel.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "runtime/autograd/engine.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/parallel/replicas.hpp"
#include "runtime/tensor/raw.hpp"

namespace ringsmith {

struct DataParallel::Job {
  std::vector<Device> devices;
  std::vector<LinkTraffic> traffic;  // written by the thread that calls forward() or backward()

  [[nodiscard]] Device root() const { return devices.front(); }
  void count(std::size_t replica, Bytes LinkTraffic::*what, const Tensor& moved) {
    if (replica > 0) traffic[replica].*what += size_in_bytes(moved);
  }
  // Moves a replica's gradient to the root.
  Tensor bring(std::size_t replica, Bytes LinkTraffic::*what, const Tensor& t) {
    count(replica, what, t);
    return t.to(root());
  }
};

// State of one forward: each replica's leaves and output. Each replica records its own graph.
struct DataParallel::Pass {
  std::vector<Device> devices;
  std::vector<Tensor> inputs;
  std::vector<std::vector<Tensor>> parameters, buffers;
  std::vector<Tensor> outputs;
  [[nodiscard]] std::size_t replicas() const { return devices.size(); }
};

namespace {

Tensor take_grad(const Tensor& leaf) {
  Tensor grad = leaf.grad();
  leaf.set_grad({});
  return grad;
}

// Parents precede their children: a parent's train() also sets the children's flags, so the
// children's must be set after it.
std::vector<Module*> parents_first(Module& module) {
  std::vector<Module*> all;
  module.apply([&](Module& m) { all.push_back(&m); });
  std::ranges::reverse(all);
  return all;
}

void copy_training_flags(Module& from, Module& to) {
  const std::vector<Module*> source = parents_first(from), target = parents_first(to);
  for (std::size_t i = 0; i < source.size(); ++i) target[i]->train(source[i]->training());
}

std::vector<std::string> described(Module& module) {
  std::vector<std::string> out;
  const auto add = [&](const char* kind, const NamedTensors& tensors) {
    for (const auto& [name, t] : tensors)
      out.push_back(std::string(kind) + " '" + name + "' " + to_string(t.sizes()) + " " +
                    std::string(name_of(t.dtype())));
  };
  add("parameter", module.named_parameters());
  add("buffer", module.named_buffers());
  return out;
}

void require_alike(Module& module, Module& replica) {
  const std::vector<std::string> mine = described(module), other = described(replica);
  for (std::size_t i = 0; i < std::max(mine.size(), other.size()); ++i) {
    const std::string a = i < mine.size() ? mine[i] : "nothing more",
                      b = i < other.size() ? other[i] : "nothing more";
    if (a != b)
      throw UsageError(
          fmt::format("DataParallel: the replica is another model: the module has {} where the "
                      "replica has {}",
                      a, b));
  }
  require(parents_first(module).size() == parents_first(replica).size(),
          fmt::format("DataParallel: the replica is another model: it has {} modules, not {}",
                      parents_first(replica).size(), parents_first(module).size()));
}

class DataParallelBackward : public Node {
 public:
  DataParallelBackward(std::shared_ptr<DataParallel::Job> job,
                       std::shared_ptr<DataParallel::Pass> pass)
      : job_(std::move(job)), pass_(std::move(pass)) {}

  std::vector<Tensor> apply(std::vector<Tensor> grads) override {
    if (pass_ == nullptr)
      throw Error(
          "DataParallel: second backward for one forward: the first freed the graphs of the "
          "replicas, even with retain_graph");
    const std::shared_ptr<DataParallel::Pass> pass = std::move(pass_);
    std::vector<Tensor> out(edges.size());
    if (!grads[0].defined()) return out;
    run(*pass, scatter_gradient(*pass, grads[0]));
    for (std::size_t p = 0; p + 1 < edges.size(); ++p)
      if (edges[p]) out[p] = add_gradients(*pass, p);
    if (edges.back()) out.back() = gather_input_gradient(*pass);
    return out;
  }
  [[nodiscard]] std::string name() const override { return "DataParallelBackward"; }
  void release() override { pass_ = nullptr; }

 private:
  std::vector<Tensor> scatter_gradient(const DataParallel::Pass& pass, const Tensor& whole) const {
    std::vector<Tensor> parts = scatter(whole, part_starts(pass.outputs), pass.devices);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      job_->count(i, &LinkTraffic::output_gradients, parts[i]);
      parts[i] = parts[i].reshape(pass.outputs[i].sizes());
    }
    return parts;
  }

  static void run(DataParallel::Pass& pass, std::vector<Tensor> gradients) {
    parallel_apply(pass.devices, [&](std::size_t i) {
      // Moved, so that the graph and its saved tensors are freed when this thread ends.
      const Tensor output = std::move(pass.outputs[i]), gradient = std::move(gradients[i]);
      if (output.requires_grad()) backward({output}, {gradient});
    });
  }

  // ((g0 + g1) + g2) + ...: the order determines the bits. Skips replicas without a gradient.
  [[nodiscard]] Tensor add_gradients(const DataParallel::Pass& pass, std::size_t p) const {
    Tensor sum;
    for (std::size_t i = 0; i < pass.replicas(); ++i) {
      const Tensor grad = take_grad(pass.parameters[i][p]);
      if (!grad.defined()) continue;
      const Tensor here = job_->bring(i, &LinkTraffic::gradients, grad);
      if (sum.defined())
        raw::add_into(sum, here);
      else
        sum = here;
    }
    return sum;
  }

  // A replica without a gradient gives zeros.
  [[nodiscard]] Tensor gather_input_gradient(const DataParallel::Pass& pass) const {
    std::vector<Tensor> parts;
    for (std::size_t i = 0; i < pass.replicas(); ++i) {
      const Tensor grad = take_grad(pass.inputs[i]);
      parts.push_back(grad.defined()
                          ? job_->bring(i, &LinkTraffic::input_gradients, grad)
                          : zeros(pass.inputs[i].sizes(), {pass.inputs[i].dtype(), job_->root()}));
    }
    return gather(parts, job_->root());
  }

  std::shared_ptr<DataParallel::Job> job_;
  std::shared_ptr<DataParallel::Pass> pass_;
};

}  // namespace

DataParallel::DataParallel(Module& module, const std::function<std::unique_ptr<Module>()>& another,
                           std::vector<Device> devices, DataParallelOptions options)
    : module_(module), options_(options), job_(std::make_shared<Job>()) {
  require(!devices.empty(), "DataParallel: no devices; name at least one");
  for (const Device device : devices) require_device(device);
  job_->devices = std::move(devices);
  reset_traffic();
  require_on_root();
  const std::string random = default_generator().state();
  for (std::size_t i = 0; i < job_->devices.size() && job_->devices.size() > 1; ++i) {
    replicas_.push_back(another());
    require_alike(module_, *replicas_.back());
  }
  default_generator().set_state(random);
  for (std::size_t i = 0; i < module_.parameters().size(); ++i)
    no_parameters_.push_back(Tensor::empty({0}));
  for (std::size_t i = 0; i < module_.buffers().size(); ++i)
    no_buffers_.push_back(Tensor::empty({0}));
  for (const auto& replica : replicas_) replica->rebind(no_parameters_, no_buffers_);
}

DataParallel::~DataParallel() = default;

void DataParallel::require_on_root() const {
  const Device where = module_.device();
  require(where == job_->root(), "DataParallel: the module is on " + where.str() +
                                     ", the root is " + job_->root().str() +
                                     ": move it there with to()");
}

std::shared_ptr<DataParallel::Pass> DataParallel::replicate(const Tensor& x, bool recording) {
  auto pass = std::make_shared<Pass>();
  const std::vector<std::int64_t> starts = chunk_starts(x.size(0), replicas_.size());
  pass->devices.assign(job_->devices.begin(),
                       job_->devices.begin() + static_cast<std::ptrdiff_t>(starts.size() - 1));
  pass->inputs = scatter(x.detach(), starts, pass->devices);
  const std::vector<Tensor> parameters = module_.parameters(), buffers = module_.buffers();
  for (std::size_t i = 0; i < pass->replicas(); ++i) {
    job_->count(i, &LinkTraffic::inputs, pass->inputs[i]);
    if (recording && x.requires_grad()) pass->inputs[i].requires_grad_();
    // Replica 0 uses the root's memory.
    pass->parameters.emplace_back();
    for (const Tensor& p : parameters) {
      job_->count(i, &LinkTraffic::parameters, p);
      const Tensor mine = i == 0 ? p.detach() : copy_to(p, pass->devices[i]).detach();
      pass->parameters[i].push_back(mine.requires_grad_(recording && p.requires_grad()));
    }
    pass->buffers.emplace_back();
    for (const Tensor& b : buffers) {
      job_->count(i, &LinkTraffic::buffers, b);
      pass->buffers[i].push_back(i == 0 ? b : copy_to(b, pass->devices[i]));
    }
  }
  return pass;
}

Tensor DataParallel::forward(const Tensor& input) {
  require_on_root();
  const Tensor x = to(input, job_->root());
  if (replicas_.empty()) return module_.forward(x);  // one device
  require(x.dim() > 0, "DataParallel: the input has no dimension to split rows along");
  std::vector<Tensor> sources = module_.parameters();
  sources.push_back(x);
  const bool recording = needs_graph(sources);
  const std::shared_ptr<Pass> pass = replicate(x, recording);
  pass->outputs.resize(pass->replicas());
  parallel_apply(
      pass->devices,
      [&](std::size_t i) {
        Module& replica = *replicas_[i];
        struct Return {  // releases the parameters, even if forward() throws
          Module& replica;
          const DataParallel& owner;
          ~Return() { replica.rebind(owner.no_parameters_, owner.no_buffers_); }
        };
        replica.rebind(pass->parameters[i], pass->buffers[i]);
        const Return at_end{replica, *this};
        copy_training_flags(module_, replica);
        pass->outputs[i] = replica.forward(pass->inputs[i]);
        require(pass->outputs[i].device() == pass->devices[i],
                "the forward returned a tensor on " + pass->outputs[i].device().str());
      },
      options_.simulate_gil ? &interpreter_ : nullptr);
  Tensor whole = gather(pass->outputs, job_->root());
  for (std::size_t i = 0; i < pass->replicas(); ++i)
    job_->count(i, &LinkTraffic::outputs, pass->outputs[i]);
  pass->buffers.clear();
  const bool any =
      std::ranges::any_of(pass->outputs, [](const Tensor& t) { return t.requires_grad(); });
  if (recording && any) connect(std::make_shared<DataParallelBackward>(job_, pass), sources, whole);
  return whole;
}

const std::vector<Device>& DataParallel::devices() const { return job_->devices; }
const std::vector<LinkTraffic>& DataParallel::traffic() const { return job_->traffic; }

LinkTraffic DataParallel::root_traffic() const {
  LinkTraffic all;
  for (const LinkTraffic& link : job_->traffic) all += link;
  return all;
}

void DataParallel::reset_traffic() { job_->traffic.assign(job_->devices.size(), {}); }

}  // namespace ringsmith
