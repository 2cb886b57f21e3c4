// Tests --amp: runs in bf16 and f16 end near the loss of f32, the metrics contain the loss scale,
// and invalid settings are refused.
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "runtime/checkpoint/safetensors.hpp"
#include "tests/apps/programs.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;

namespace {

struct Metrics {
  std::vector<double> losses, scales;
};

Metrics metrics_of(const std::string& run) {
  Metrics out;
  std::istringstream in(read_text(run + "/metrics.jsonl"));
  for (std::string line; std::getline(in, line);) {
    const auto m = nlohmann::json::parse(line);
    out.losses.push_back(m.at("loss").get<double>());
    if (m.contains("scale")) out.scales.push_back(m.at("scale").get<double>());
  }
  return out;
}

double last_mean(const std::vector<double>& losses) {
  double sum = 0;
  for (std::size_t i = losses.size() - 10; i < losses.size(); ++i) sum += losses[i];
  return sum / 10;
}

}  // namespace

TEST_CASE("a GPT trained in bf16 or f16 on two ranks comes as far as in f32", "[programs]") {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 400; ++i) lines += "ring " + std::to_string(i * i) + " of steps\n";
  const std::string text = write_text(folder / "text", lines);
  const auto train = [&](const std::string& amp) {
    const std::string run = folder / amp;
    const auto r = run_app(2, "train_gpt",
                           {"--data",
                            text,
                            "--steps",
                            "80",
                            "--layers",
                            "1",
                            "--dim",
                            "32",
                            "--heads",
                            "2",
                            "--context",
                            "24",
                            "--batch",
                            "4",
                            "--sample",
                            "0",
                            "--validation-windows",
                            "4",
                            "--bucket-cap-mb",
                            "50",
                            "--amp",
                            amp,
                            "--no-trace",
                            "--progress",
                            "off",
                            "--run-dir",
                            run});
    INFO(r.err << r.out);
    REQUIRE(r.exit_code == 0);
    for (const auto& [name, t] : load_safetensors(run + "/model.safetensors").tensors)
      REQUIRE(t.dtype() == DType::f32);
    return metrics_of(run);
  };
  const Metrics off = train("off"), bf16 = train("bf16"), f16 = train("f16");
  CHECK(off.losses.front() - last_mean(off.losses) > 1.5);
  // Single losses of such small batches vary by tenths, so means are compared.
  CHECK(std::abs(last_mean(bf16.losses) - last_mean(off.losses)) < 0.05);
  CHECK(std::abs(last_mean(f16.losses) - last_mean(off.losses)) < 0.05);
  CHECK(bf16.losses != off.losses);
  CHECK(f16.losses != bf16.losses);
  CHECK(off.scales.empty());
  CHECK(bf16.scales.empty());
  REQUIRE(f16.scales.size() == 80);
  CHECK(f16.scales.front() > 0);
}

TEST_CASE("a ResNet-18 on two ranks takes f32's steps in bf16 and f16, to their rounding",
          "[programs]") {
  const TemporaryFolder folder;
  const auto train = [&](const std::string& amp) {
    const std::string run = folder / amp;
    const auto r = run_app(
        2, "train_images",
        tiny_images() + std::vector<std::string>{"--steps", "8", "--amp", amp, "--run-dir", run});
    INFO(r.err << r.out);
    REQUIRE(r.exit_code == 0);
    return metrics_of(run);
  };
  const Metrics off = train("off"), bf16 = train("bf16"), f16 = train("f16");
  REQUIRE(off.losses.size() == 8);
  REQUIRE(f16.scales.size() == 8);
  for (const auto& [half, bits] : {std::pair(bf16, 8), std::pair(f16, 11)}) {
    CHECK(half.losses != off.losses);
    CHECK(std::abs(half.losses[0] - off.losses[0]) <= std::ldexp(8 * off.losses[0], -bits));
    CHECK(std::abs(half.losses[7] - off.losses[7]) <= 0.1 * off.losses[7]);
  }
}

TEST_CASE("--amp with what is no 16-bit type is one line that names the choices", "[programs]") {
  for (const char* program : {"train_gpt", "train_mlp", "train_images"}) {
    const auto r = run_app(0, program, {"--amp", "f8"});
    CHECK(r.exit_code == 6);
    CHECK_THAT(r.err, ContainsSubstring("--amp: 'f8' is not one of off, bf16, f16"));
    const auto products = run_app(0, program, {"--bf16-products", "vnni"});
    CHECK(products.exit_code == 6);
    CHECK_THAT(products.err,
               ContainsSubstring(
                   "--bf16-products: 'vnni' is not one of auto, widened, avx512_bf16, amx_bf16"));
  }
}
