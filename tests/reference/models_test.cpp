// Ranks as threads repeat the first steps of whole models under PyTorch's DDP. Initial values,
// losses, parameters and buffers must be equal bit for bit. torch_models.py made the runs, and
// defines the checksums by which tensors are compared.
#include <bit>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "runtime/base/rng.hpp"
#include "runtime/nn/resnet.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/ddp.hpp"
#include "tests/reference/data.hpp"
#include "tests/reference/thread_ranks.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/kernel_mode.hpp"

using namespace ringsmith;
using namespace ringsmith::reference;
using nlohmann::json;

namespace {

std::string check_of(const Tensor& t) {
  std::uint64_t sum = 0, weight = 1;
  for (const float v : t.detach().to(DType::f32).to_vector<float>()) {
    sum += weight * std::bit_cast<std::uint32_t>(v);
    weight += 2;
  }
  return fmt::format("{:x}", sum);
}

class Tied : public Module {
 public:
  Tied(std::int64_t classes, std::int64_t dim)
      : tok_(classes, dim), up_(dim, dim), head_(dim, classes, /*with_bias=*/false) {
    register_module("tok", tok_);
    register_module("up", up_);
    register_module("head", head_);
    head_.weight = tok_.weight;
  }
  Tensor forward(const Tensor& x) override { return head_(relu(up_(tok_(x)))); }

 private:
  Embedding tok_;
  Linear up_, head_;
};

std::unique_ptr<Module> make_model(const json& run) {
  const json& o = run.at("options");
  if (run.at("model") == "tied") return std::make_unique<Tied>(o.at("classes"), o.at("dim"));
  if (run.at("model") == "resnet")
    return std::make_unique<ResNet>(ResNetOptions{.depth = o.at("depth"),
                                                  .classes = o.at("classes"),
                                                  .channels = o.at("channels"),
                                                  .width = o.at("width"),
                                                  .small_stem = o.at("small_stem")});
  const auto image = run.at("image").get<Shape>();
  return std::make_unique<SmallCNN>(image[0], image[1], image[2], o.at("classes"));
}

// The threads share one generator, so only one draws its model at a time.
std::unique_ptr<Module> draw_model(const json& run, int rank) {
  static std::mutex one;
  const std::lock_guard lock(one);
  manual_seed(100 + static_cast<std::uint64_t>(rank));
  return make_model(run);
}

// Returns the first difference on this rank, or "". Always runs all steps.
std::string replay(const json& run, const std::shared_ptr<comm::ProcessGroup>& group) {
  const auto rank = static_cast<std::size_t>(group->rank());
  std::string complaint;
  const auto same = [&](const std::string& what, const auto& got, const auto& want) {
    if (complaint.empty() && got != want)
      complaint = fmt::format("rank {}, {}: {}, expected {}", rank, what, got, want);
  };
  const std::unique_ptr<Module> model = draw_model(run, group->rank());
  NamedTensors named = model->named_parameters();
  const std::size_t parameters = named.size();
  for (const auto& buffer : model->named_buffers()) named.push_back(buffer);
  require(named.size() == run.at("names").size(), "another number of tensors than in the run");
  for (std::size_t i = 0; i < named.size(); ++i) {
    same("name", named[i].first, run.at("names").at(i).get<std::string>());
    same("shape of " + named[i].first, to_string(named[i].second.sizes()),
         to_string(run.at("shapes").at(i).get<Shape>()));
  }
  const auto compare = [&](const std::string& when, std::size_t first, const json& want) {
    for (std::size_t i = 0; i < want.size(); ++i)
      same(fmt::format("{}, {}", when, named[first + i].first), check_of(named[first + i].second),
           want.at(i).get<std::string>());
  };
  compare("initial values", 0, run.at("init").at(rank));

  const auto batch = run.at("batch").get<std::int64_t>();
  const auto steps = run.at("steps").size();
  const auto labels = run.at("y").get<std::vector<std::int64_t>>();
  const std::int64_t rows = batch * group->size() * static_cast<std::int64_t>(steps);
  Generator g(1000);
  Tensor x, y;
  if (run.contains("image")) {
    Shape shape = run.at("image").get<Shape>();
    shape.insert(shape.begin(), rows);
    x = randn(shape, g);
    y = from_vector(labels);
  } else {
    const Shape shape{rows, run.at("tokens")};
    std::vector<std::int64_t> tokens;
    for (std::size_t i = 0; i < labels.size(); ++i)
      tokens.push_back(randint(0, run.at("options").at("classes"), g));
    x = from_vector(tokens, shape);
    y = from_vector(labels, shape);
  }
  same("inputs", check_of(x), run.at("x").get<std::string>());

  DdpOptions options;
  options.algorithm = comm::Algorithm::gloo_ring;
  DistributedDataParallel ddp(*model, group, options);
  SGD optimizer(model->parameters(), {.lr = run.at("lr"), .momentum = run.at("momentum")});
  for (std::size_t s = 0; s < steps; ++s) {
    const json& step = run.at("steps").at(s);
    const std::string when = fmt::format("step {}", s);
    const std::int64_t first =
        (group->size() * static_cast<std::int64_t>(s) + group->rank()) * batch;
    optimizer.zero_grad();
    const Tensor logits = ddp.forward(x.slice(0, first, first + batch));
    const Tensor loss = cross_entropy(reshape(logits, {-1, logits.size(-1)}),
                                      reshape(y.slice(0, first, first + batch), {-1}));
    loss.backward();
    optimizer.step();
    same(when + ", loss", loss.item<float>(), step.at("loss").at(rank).get<float>());
    compare("after " + when, 0, step.at("params"));
    compare("after " + when, parameters, step.at("buffers").at(rank));
  }
  return complaint;
}

}  // namespace

TEST_CASE("models take the first steps that PyTorch takes, bit for bit") {
  if (!has_part("models")) return;
  const test::KernelMode oracle(kernels::Mode::oracle);
  std::map<std::string, int> runs;
  for (const std::string& name : list("models")) {
    const json run = load("models/" + name + ".json");
    ++runs[name.substr(0, name.rfind("_w"))];
    INFO(name);
    for (const std::string& complaint :
         complaints_of(run.at("world"), [&](auto group) { return replay(run, group); }))
      CHECK(complaint == "");
  }
  if (is_shipped_set())
    CHECK(runs ==
          std::map<std::string, int>{
              {"resnet18", 5}, {"resnet34", 1}, {"resnet50", 1}, {"small_cnn", 5}, {"tied", 5}});
}
