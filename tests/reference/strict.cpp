#include "tests/reference/strict.hpp"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/reference/data.hpp"

namespace ringsmith::reference {

namespace {

std::vector<Tensor> parameters(const nlohmann::json& flat, const std::vector<Shape>& shapes) {
  require(flat.size() == shapes.size(), "strict run: expected the parameters w1, b1, w2, b2");
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    out.push_back(tensor_f32(flat[i].get<std::vector<float>>(), shapes[i]));
  return out;
}

}  // namespace

StrictRun load_strict(const std::string& name) {
  const nlohmann::json doc = load("strict/" + name + ".json");
  require(doc.at("model") == "linear-relu-linear, mse(mean)" && doc.at("sampler").at("shuffle"),
          "strict run " + name + ": another model or sampler than the one this test replays");
  const auto in = doc.at("in").get<std::int64_t>(), hidden = doc.at("hidden").get<std::int64_t>(),
             out = doc.at("out").get<std::int64_t>();
  const std::vector<Shape> shapes{{hidden, in}, {hidden}, {out, hidden}, {out}};
  StrictRun run;
  run.world = doc.at("world").get<int>();
  run.samples = doc.at("n").get<std::int64_t>();
  run.lr = doc.at("lr").get<double>();
  run.momentum = doc.at("momentum").get<double>();
  run.sampler_seed = doc.at("sampler").at("seed").get<std::int64_t>();
  run.epochs = doc.at("sampler").at("epochs").get<std::int64_t>();
  run.batch = doc.at("sampler").at("batch").get<std::int64_t>();
  run.x = tensor_f32(doc.at("x").get<std::vector<float>>(), {run.samples, in});
  run.y = tensor_f32(doc.at("y").get<std::vector<float>>(), {run.samples, out});
  for (const auto& rank : doc.at("init")) run.init.push_back(parameters(rank, shapes));
  for (const auto& step : doc.at("steps"))
    run.steps.push_back({step.at("epoch").get<std::int64_t>(),
                         step.at("indices").get<std::vector<std::vector<std::int64_t>>>(),
                         step.at("loss").get<std::vector<float>>(),
                         parameters(step.at("params"), shapes)});
  require(static_cast<int>(run.init.size()) == run.world && !run.steps.empty(),
          "strict run " + name + ": ranks or steps are missing");
  return run;
}

Tensor rows(const Tensor& t, const std::vector<std::int64_t>& indices) {
  const std::int64_t width = t.size(1);
  const Tensor out = Tensor::empty({static_cast<std::int64_t>(indices.size()), width});
  for (std::size_t i = 0; i < indices.size(); ++i)
    std::copy_n(t.data<float>() + indices[i] * width, width,
                out.data<float>() + static_cast<std::int64_t>(i) * width);
  return out;
}

std::string bit_difference(const Tensor& got, const Tensor& want) {
  if (got.sizes() != want.sizes())
    return fmt::format("shape {}, expected {}", to_string(got.sizes()), to_string(want.sizes()));
  const std::vector<float> a = got.to_vector<float>(), b = want.to_vector<float>();
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]))
      return fmt::format("element {}: {:.9g}, expected {:.9g}", i, a[i], b[i]);
  return {};
}

}  // namespace ringsmith::reference
