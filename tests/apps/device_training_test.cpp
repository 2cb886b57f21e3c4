// Runs train_gpt with one rank per device. The result must agree with the CPU's, and a repetition
// must be bit-identical.
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/checkpoint/safetensors.hpp"
#include "tests/apps/programs.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;

namespace {

struct Training {
  std::vector<double> losses;
  std::string model;  // contents of the file
  Checkpoint parameters;
};

Training train(const std::string& text, const std::string& run, int world,
               const std::vector<std::string>& more) {
  std::vector<std::string> options = tiny_gpt(text);
  for (const char* o : {"--global-batch", "8", "--steps", "6", "--validation-windows", "4",
                        "--run-dir", run.c_str()})
    options.emplace_back(o);
  options.insert(options.end(), more.begin(), more.end());
  const ProgramResult r = run_app(world, "train_gpt", options);
  INFO(run << "\n" << r.out << r.err);
  REQUIRE(r.exit_code == 0);
  REQUIRE((r.out.find("on the ranks' GPUs") != std::string::npos) == !more.empty());
  Training out;
  std::istringstream lines(read_text(run + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    out.losses.push_back(nlohmann::json::parse(line).at("loss"));
  out.model = read_text(run + "/model.safetensors");
  out.parameters = load_safetensors(run + "/model.safetensors");
  return out;
}

}  // namespace

TEST_CASE("train_gpt on 1, 2 and 4 devices is the CPU's training to 1e-4, and repeats bit for bit",
          "[.][on_devices]") {
  const TemporaryFolder folder;
  std::string words;
  for (int i = 0; i < 400; ++i) words += "ring " + std::to_string(i * i) + " of steps\n";
  const std::string text = write_text(folder / "text", words);
  const Training cpu = train(text, folder / "cpu", 1, {});
  REQUIRE(cpu.losses.size() == 6);
  REQUIRE(cpu.losses[5] < cpu.losses[0]);  // the loss falls
  for (const int world : {1, 2, 4}) {
    const auto on_devices = [&](const char* name) {
      return train(text, folder / (name + std::to_string(world)), world, {"--device", "cuda"});
    };
    const Training first = on_devices("first"), second = on_devices("second");
    INFO(world << " devices");
    REQUIRE(first.losses.size() == cpu.losses.size());
    for (std::size_t i = 0; i < cpu.losses.size(); ++i)
      CHECK(std::abs(first.losses[i] - cpu.losses[i]) <= 1e-4 * cpu.losses[i]);
    REQUIRE(first.parameters.tensors.size() == cpu.parameters.tensors.size());
    for (const auto& [name, tensor] : cpu.parameters.tensors) {
      const auto want = tensor.to_vector<float>(),
                 got = first.parameters.tensors.at(name).to_vector<float>();
      REQUIRE(got.size() == want.size());
      double apart = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double d = std::abs(double{got[i]} - double{want[i]});
        if (!(d <= apart)) apart = std::isnan(d) ? HUGE_VAL : d;  // a NaN must not be lost
      }
      INFO(name);
      CHECK(apart <= 1e-4);
    }
    CHECK(first.losses == second.losses);
    CHECK(first.model == second.model);
  }
}

TEST_CASE("train_gpt --graph trains to the same model, in f32 and in bf16", "[.][on_devices]") {
  const TemporaryFolder folder;
  std::string words;
  for (int i = 0; i < 400; ++i) words += "ring " + std::to_string(i * i) + " of steps\n";
  const std::string text = write_text(folder / "text", words);
  for (const char* amp : {"off", "bf16"}) {
    INFO("--amp " << amp);
    const auto run = [&](const std::string& name, std::vector<std::string> more) {
      more.insert(more.end(), {"--device", "cuda", "--amp", amp});
      return train(text, folder / (name + amp), 1, more);
    };
    const Training eager = run("eager", {}), graph = run("graph", {"--graph"});
    REQUIRE(graph.losses.size() == 6);
    CHECK(graph.losses == eager.losses);
    CHECK(graph.model == eager.model);
  }
}

TEST_CASE("train_images on 1 and 2 devices is the CPU's training", "[.][on_devices]") {
  const TemporaryFolder folder;
  const auto losses = [&](const std::string& name, int world, std::vector<std::string> options) {
    options = tiny_images() + std::vector<std::string>{"--run-dir", folder / name} + options;
    const ProgramResult r = run_app(world, "train_images", options);
    INFO(r.out << r.err);
    REQUIRE(r.exit_code == 0);
    std::vector<double> out;
    std::istringstream lines(read_text(folder / (name + "/metrics.jsonl")));
    for (std::string line; std::getline(lines, line);)
      out.push_back(nlohmann::json::parse(line).at("loss"));
    return out;
  };
  for (const int world : {1, 2}) {
    const std::string number = std::to_string(world);
    const auto cpu = losses("cpu" + number, world, {});
    const auto device = losses("device" + number, world, {"--device", "cuda"});
    REQUIRE(cpu.size() == 3);
    REQUIRE(device.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) CHECK(std::abs(device[i] - cpu[i]) <= 1e-3 * cpu[i]);
    CHECK(losses("again" + number, world, {"--device", "cuda"}) == device);
  }
}

#ifdef RINGSMITH_VGPU  // the emulated machine has 8 GPUs
TEST_CASE("ranks that see one GPU each, as their cuda:0: the same bits, other GPUs",
          "[.][on_devices]") {
  const TemporaryFolder folder;
  std::string words;
  for (int i = 0; i < 400; ++i) words += "ring " + std::to_string(i * i) + " of steps\n";
  const std::string text = write_text(folder / "text", words);
  const auto model_of = [&](const std::string& name, const std::string& prefix) {
    std::string command = prefix + " exec " RINGSMITH_BINARY_DIR "/bin/train_gpt";
    for (const std::string& word :
         tiny_gpt(text) + std::vector<std::string>{"--run-dir", folder / name})
      command += " " + word;
    const ProgramResult r = run_program({RINGSMITH_SOURCE_DIR "/tests/support/mpirun.sh", "3", "sh",
                                         "-c", command + " --device cuda"},
                                        60);
    INFO(command << "\n" << r.out << r.err);
    REQUIRE(r.exit_code == 0);
    return read_text(folder / name + "/model.safetensors");
  };
  const std::string all = model_of("all", "");
  CHECK(model_of("one", "CUDA_VISIBLE_DEVICES=$((5 - OMPI_COMM_WORLD_LOCAL_RANK))") == all);
  // All ranks share GPU 6, which is cuda:0 in rank 0, cuda:1 in rank 1 and cuda:2 in rank 2.
  CHECK(model_of("shared",
                 "[ $OMPI_COMM_WORLD_LOCAL_RANK = 0 ] && export CUDA_VISIBLE_DEVICES=6,4;"
                 "[ $OMPI_COMM_WORLD_LOCAL_RANK = 1 ] && export CUDA_VISIBLE_DEVICES=3,6;"
                 "[ $OMPI_COMM_WORLD_LOCAL_RANK = 2 ] && export CUDA_VISIBLE_DEVICES=1,0,6;") ==
        all);

  // The runtime identifies a GPU by its properties, not by its number in a process.
  const auto engine_of = [](const std::string& prefix) {
    return run_program({RINGSMITH_SOURCE_DIR "/tests/support/mpirun.sh", "2", "sh", "-c",
                        prefix + " exec " RINGSMITH_BINARY_DIR
                                 "/bin/all_reduce_perf -b 4K -e 4K -n 1 --device cuda"},
                       60)
        .out;
  };
  CHECK_THAT(engine_of("CUDA_VISIBLE_DEVICES=$((5 - OMPI_COMM_WORLD_LOCAL_RANK))"),
             ContainsSubstring("every rank has its own device"));
  CHECK_THAT(engine_of("CUDA_VISIBLE_DEVICES=5"),
             ContainsSubstring("ranks 0 and 1 share a device"));

  for (const char* list : {"", "-1", "9,0", "zero", "2,2", "GPU-0"}) {
    const ProgramResult r = run_program({"env", std::string("CUDA_VISIBLE_DEVICES=") + list,
                                         RINGSMITH_BINARY_DIR "/bin/train_gpt", "--device", "cuda"},
                                        60);
    INFO(list << "\n" << r.out << r.err);
    CHECK(r.exit_code == 6);
    CHECK_THAT(r.err,
               ContainsSubstring("there is no device cuda:0: no CUDA device was found; use cpu"));
  }
}
#endif
