#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <utility>

#include "runtime/checkpoint/snapshot.hpp"
#include "tests/apps/programs.hpp"
#include "tests/fault/started_by_hand.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/free_port.hpp"

namespace ringsmith::testing {

using Options = std::vector<std::string>;
constexpr int kSteps = 24, kEvery = 7;  // checkpoints at 7, 14, 21 and 24, in several epochs

struct Program {
  std::string name;
  Options options;
  // Run as user "nobody", because root may write anywhere.
  bool as_nobody = false;
};

inline Program gpt(const TemporaryFolder& folder, const std::string& dropout = "0.2") {
  std::string text;
  for (int i = 0; i < 20; ++i) text += "ring " + std::to_string(i * i) + " steps\n";
  return {"train_gpt",
          {"--data",
           write_text(folder / "text", text),
           "--layers",
           "1",
           "--dim",
           "16",
           "--heads",
           "2",
           "--context",
           "16",
           "--batch",
           "4",
           "--steps",
           std::to_string(kSteps),
           "--dropout",
           dropout,
           "--sample",
           "8",
           "--validation-windows",
           "4",
           "--progress",
           "off"}};
}
inline Program mlp() {
  return {"train_mlp",
          {"--draw", "200", "--hidden", "8", "--batch", "6", "--steps", std::to_string(kSteps),
           "--progress", "off"}};
}
inline Program cnn() {
  return {"train_images",
          {"--draw", "60", "--model", "resnet18", "--width", "4", "--batch", "6", "--steps",
           std::to_string(kSteps), "--augment", "crop-flip", "--progress", "off"}};
}
inline Options saving(const std::string& run) {
  return {"--run-dir", run, "--save-every", std::to_string(kEvery), "--keep", "9"};
}
inline std::string checkpoint(const std::string& run, int step) {
  return run + "/checkpoints/" + snapshot_name(step);
}

// Ranks without a launcher, so that a test can kill one without ending the others.
class Ranks {
 public:
  // Standard output is appended to `log`, standard error to `log`.err. of_last: additional options
  // of the last rank.
  Ranks(int world, const Program& program, const Options& more, const std::string& log,
        const Options& of_last = {}) {
    const std::string port = free_port();
    for (int rank = 0; rank < world; ++rank) {
      pids_.push_back(fork());
      if (pids_.back() != 0) continue;
      test::look_started_by_hand(rank, world, port);
      setenv("OPENBLAS_NUM_THREADS", "1", 1);
      for (const auto& [name, stream] : {std::pair(log, 1), std::pair(log + ".err", 2)})
        dup2(open(name.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644), stream);
      if (program.as_nobody && geteuid() == 0 && setuid(65534) != 0) _exit(126);
      const Options all = program.options + more + (rank == world - 1 ? of_last : Options{});
      const std::string path = RINGSMITH_BINARY_DIR "/bin/" + program.name;
      std::vector<char*> argv{const_cast<char*>(path.c_str())};
      for (const std::string& o : all) argv.push_back(const_cast<char*>(o.c_str()));
      argv.push_back(nullptr);
      execv(path.c_str(), argv.data());
      _exit(127);
    }
    codes_.resize(pids_.size());
  }
  static constexpr double kForever = 1e6;  // seconds
  ~Ranks() {
    kill();
    (void)wait(kForever);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void kill(int only = -1, int signal = SIGKILL) const {
    for (std::size_t r = 0; r < pids_.size(); ++r)
      if (pids_[r] > 0 && (only < 0 || static_cast<std::size_t>(only) == r))
        ::kill(pids_[r], signal);
  }
  bool wait(double seconds) {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    for (std::size_t r = 0; r < pids_.size(); ++r)
      while (pids_[r] > 0) {
        int status = 0;
        if (waitpid(pids_[r], &status, WNOHANG) == pids_[r]) {
          pids_[r] = 0;
          codes_[r] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        } else if (Clock::now() > end) {
          return false;
        } else {
          std::this_thread::sleep_for(std::chrono::microseconds(500));
        }
      }
    return true;
  }
  [[nodiscard]] bool all_ended_with(int code) const {
    return std::ranges::all_of(codes_, [&](int c) { return c == code; });
  }
  [[nodiscard]] int code(std::size_t rank) const { return codes_[rank]; }

 private:
  std::vector<pid_t> pids_;
  std::vector<int> codes_;  // exit code, or 128 + signal
};

inline long from_environment(const char* name, long otherwise) {
  const std::string text = variable(name);
  return text.empty() ? otherwise : std::stol(text);
}

// The exit code is -1 if the ranks' codes differ.
inline ProgramResult result_of(Ranks& ranks, const std::string& log) {
  ProgramResult r;
  r.timed_out = !ranks.wait(60);
  r.exit_code = ranks.all_ended_with(ranks.code(0)) ? ranks.code(0) : -1;
  r.out = read_text(log);
  r.err = read_text(log + ".err");
  return r;
}

inline ProgramResult run(int world, const Program& program, const Options& more) {
  const TemporaryFolder logs;
  Ranks ranks(world, program, more, logs / "log");
  const ProgramResult r = result_of(ranks, logs / "log");
  INFO(program.name << " on " << world << "\n" << r.out << r.err);
  REQUIRE(r.exit_code == 0);
  return r;
}

// Returns the loss and the learning rate of each step, as texts.
inline std::map<int, std::string> metrics(const std::string& folder) {
  std::map<int, std::string> out;
  std::istringstream in(read_text(folder + "/metrics.jsonl"));
  for (std::string line; std::getline(in, line);) {
    const auto m = nlohmann::json::parse(line);
    const bool first = out.emplace(m.at("step"), m.at("loss").dump() + m.at("lr").dump()).second;
    CHECK(first);  // no step occurs twice
  }
  return out;
}

// Compares the model, the losses and learning rates after step `from`, and all files of the last
// checkpoint unless `from` is the last step.
inline void check_same(const std::string& expected, const std::string& got, int from) {
  INFO(got << " compared with " << expected);
  REQUIRE(read_text(expected + "/model.safetensors").size() > 1000);
  CHECK(read_text(got + "/model.safetensors") == read_text(expected + "/model.safetensors"));
  const auto all = metrics(expected);
  REQUIRE(all.size() == kSteps);
  CHECK(metrics(got) == std::map<int, std::string>(all.upper_bound(from), all.end()));
  if (from == kSteps) return;  // there was nothing left to save
  for (const auto& file : std::filesystem::directory_iterator(checkpoint(expected, kSteps))) {
    INFO(file.path());
    CHECK(read_text(file.path()) ==
          read_text(checkpoint(got, kSteps) + "/" + file.path().filename().string()));
  }
}

}  // namespace ringsmith::testing
