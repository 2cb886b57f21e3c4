// Runs the programs under the launchers. Training must give bit-identical models under all of them,
// and the measuring programs must give correct results.
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/launch/background.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/free_port.hpp"

using namespace ringsmith::testing;

namespace {

using Words = std::vector<std::string>;

const std::string kBin = RINGSMITH_BINARY_DIR "/bin/";

ProgramResult under_ringrun(int world, const std::string& program, const Words& options) {
  return ringrun(Words{"--standalone", "--no-prefix", "--nproc-per-node", std::to_string(world),
                       "--", kBin + program} +
                 options);
}

int by_hand(const std::vector<Words>& variables, const std::string& program, const Words& options) {
  std::vector<std::unique_ptr<Background>> ranks;
  for (const Words& v : variables)
    ranks.push_back(
        std::make_unique<Background>(Words{"/usr/bin/env"} + v + Words{kBin + program} + options));
  int worst = 0;
  for (const auto& rank : ranks) {
    const int code = rank->wait();
    INFO(rank->output());
    CHECK(code == 0);
    worst = std::max(worst, std::abs(code));
  }
  return worst;
}

// Starts `world` ranks, which write their files to the folder of --run-dir.
using Launcher = std::function<int(int world, const std::string& program, const Words& options)>;

std::map<std::string, Launcher> launchers() {
  std::map<std::string, Launcher> out;
  out["mpirun"] = [](int world, const std::string& program, const Words& options) {
    return run_app(world, program, options).exit_code;
  };
  out["ringrun"] = [](int world, const std::string& program, const Words& options) {
    const auto r = under_ringrun(world, program, options);
    INFO(r.err);
    CHECK(r.exit_code == 0);
    return r.exit_code;
  };
  out["two ringruns"] = [](int world, const std::string& program, const Words& options) {
    const TemporaryFolder folder;
    REQUIRE(ringrun({"--make-secret", folder / "secret"}).exit_code == 0);
    std::vector<std::unique_ptr<Background>> nodes;
    for (const int node : {0, 1})
      nodes.push_back(std::make_unique<Background>(
          Words{kRingrun, "--nnodes", "2", "--node-rank", std::to_string(node), "--port-file",
                folder / "port", "--secret-file", folder / "secret", "--nproc-per-node",
                std::to_string(node == 0 ? world - 1 : 1), "--", kBin + program} +
          options));
    return std::max(nodes[0]->wait(), nodes[1]->wait());
  };
  out["variables by hand"] = [](int world, const std::string& program, const Words& options) {
    const std::string port = free_port();
    std::vector<Words> variables;
    for (int r = 0; r < world; ++r)
      variables.push_back({"RANK=" + std::to_string(r), "WORLD_SIZE=" + std::to_string(world),
                           "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port,
                           "RINGSMITH_SECRET=sixteen letters!"});
    return by_hand(variables, program, options);
  };
  // The variables as srun would set them. tests/slurm runs a real Slurm.
  out["Slurm's variables"] = [](int world, const std::string& program, const Words& options) {
    const std::string port = free_port();
    std::vector<Words> variables;
    for (int r = 0; r < world; ++r)
      variables.push_back(
          {"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_STEP_NODELIST=localhost",
           "SLURM_PROCID=" + std::to_string(r), "SLURM_STEP_NUM_TASKS=" + std::to_string(world),
           "SLURM_STEP_RESV_PORTS=" + port + "-65535", "RINGSMITH_SECRET=sixteen letters!"});
    return by_hand(variables, program, options);
  };
  out["a folder"] = [](int world, const std::string& program, const Words& options) {
    const TemporaryFolder folder;
    std::vector<Words> variables;
    for (int r = 0; r < world; ++r)
      variables.push_back({"RANK=" + std::to_string(r), "WORLD_SIZE=" + std::to_string(world),
                           "RINGSMITH_MEETING_DIR=" + (folder / "meeting")});
    return by_hand(variables, program, options);
  };
  return out;
}

}  // namespace

TEST_CASE("training is the same, bit for bit, whoever starts the ranks", "[programs]") {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i) text += "ring " + std::to_string(i * i) + " of steps\n";
  write_text(folder / "text", text);
  for (const std::string program : {"train_gpt", "train_mlp"})
    for (const int world : {2, 3}) {
      std::string model;
      for (const auto& [name, launch] : launchers()) {
        INFO(program << " on " << world << " ranks: " << name);
        const std::string run = folder / (program + std::to_string(world) + name);
        const Words options = program == "train_gpt" ? tiny_gpt(folder / "text") : tiny_mlp();
        REQUIRE(launch(world, program, options + Words{"--run-dir", run}) == 0);
        const std::string bytes = read_text(run + "/model.safetensors");
        REQUIRE(bytes.size() > 1000);
        if (model.empty()) model = bytes;
        CHECK(bytes == model);
      }
    }
}

TEST_CASE("every measuring program gets every element right under ringrun", "[programs]") {
  for (const std::string program : {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                    "reduce", "alltoall", "gather", "scatter", "sendrecv"}) {
    const auto r = under_ringrun(3, program + "_perf",
                                 {"-b", "4", "-e", "300K", "-f", "40", "-n", "2", "--json"});
    INFO(program << r.out << r.err);
    REQUIRE(r.exit_code == 0);
    const auto json = nlohmann::json::parse(r.out);
    CHECK(json.at("ranks") == 3);
    CHECK(json.at("out_of_bounds") == 0);
    CHECK(json.at("results").size() == 4);
  }
}

TEST_CASE("a program's mistake under ringrun: its own line, its own exit code", "[programs]") {
  auto r = under_ringrun(2, "train_mlp", {"--no-such-option"});
  INFO(r.err);
  CHECK(r.exit_code == 6);
  CHECK(error_lines("train_mlp", r.err).size() == 1);
  CHECK_THAT(r.err, ContainsSubstring("failed first: exit code 6"));
  r = under_ringrun(2, "train_mlp", {"--help"});
  CHECK(r.exit_code == 0);
  const std::size_t usage = r.out.find("Usage:");
  REQUIRE(usage != std::string::npos);
  CHECK(r.out.find("Usage:", usage + 1) == std::string::npos);  // only one rank prints it
  CHECK_THAT(r.out, ContainsSubstring("--bootstrap") && ContainsSubstring("RINGSMITH_SECRET"));
}

TEST_CASE("--bootstrap self ignores the launcher, another kind asks for its variables",
          "[programs]") {
  auto r = under_ringrun(2, "all_reduce_perf", {"-b", "1K", "-n", "1", "--bootstrap", "self"});
  CHECK(r.exit_code == 0);
  CHECK_THAT(r.out, ContainsSubstring("one rank alone"));
  r = under_ringrun(2, "all_reduce_perf", {"-b", "1K", "-n", "1", "--bootstrap", "slurm"});
  CHECK(r.exit_code == 6);
  CHECK_THAT(r.err, ContainsSubstring("--bootstrap slurm: expected in the environment"));
  r = under_ringrun(2, "all_reduce_perf", {"-b", "1K", "-n", "1", "--bootstrap", "mpl"});
  CHECK(r.exit_code == 6);
}

TEST_CASE("a rank that dies or leaves early under ringrun is named by all", "[programs]") {
  const std::string perf = kBin + "all_reduce_perf -b 1K -n 20 -N 0";
  // Rank 1's program dies in a collective, after rank 0 has started its table. Rank 1's shell exits
  // only after the others have reported the death, because ringrun ends them when the shell exits.
  const TemporaryFolder folder;
  const std::string dies = perf +
                           " & await table.0; kill -KILL $!; wait $!; await said.0; await said.2; "
                           "exit 1",
                    sees = perf + " > table.$RANK; echo $? > said.$RANK; exec sleep 60";
  auto r = ringrun_shell({"--nproc-per-node", "3"},
                         "cd " + folder.path.string() +
                             "; await() { while ! [ -s $1 ]; do sleep 0.02; done; }; "
                             "if [ $RANK = 1 ]; then " +
                             dies + "; fi; " + sees);
  INFO(r.err);
  CHECK_THAT(r.err, ContainsSubstring("[0] all_reduce_perf: error: rank 1 (pid ") &&
                        ContainsSubstring("[2] all_reduce_perf: error: rank 1 (pid ") &&
                        ContainsSubstring("ringrun: rank 1 failed first: exit code 1"));
  CHECK(r.exit_code == 1);
  for (const char* survivor : {"said.0", "said.2"}) CHECK(read_text(folder / survivor) == "3\n");
  // Rank 1 exits with 0 before it meets the others, which must learn of this immediately.
  r = ringrun_shell({"--nproc-per-node", "3"}, "[ $RANK = 1 ] || exec " + perf + " --timeout 500");
  INFO(r.err);
  CHECK_FALSE(r.timed_out);
  CHECK(r.exit_code == 3);
  CHECK_THAT(r.err, ContainsSubstring("rank 1 ended (exit code 0) before all ranks had found"));
}
