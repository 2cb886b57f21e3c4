#include "tests/fault/per_step_job.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <span>
#include <sstream>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "runtime/autograd/functions.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/checkpoint/sha256.hpp"
#include "runtime/job/store/server.hpp"
#include "runtime/nn/layers.hpp"
#include "runtime/parallel/beyond/per_step.hpp"
#include "runtime/parallel/stop_request.hpp"
#include "tests/fault/forked_ranks.hpp"

namespace ringsmith::test {

namespace {

using comm::Secret;
using comm::StoreClient;
using comm::StoreServer;

const Secret kSecret("a secret of this test", "the test");
constexpr int kMostKills = 16, kMostRanks = 8;

struct Board {
  std::atomic<int> done[kMostKills];
  std::atomic<std::int64_t> lost_in[kMostRanks];  // the quorum in which a rank was killed
  std::atomic<std::uint64_t> joiners;
};

struct Training {
  Training() {
    Generator generator(kPerStepSeed);
    inputs = randn({kPerStepSamples, 5}, generator);
    targets = randn({kPerStepSamples, 3}, generator);
    manual_seed(kPerStepSeed);
  }
  [[nodiscard]] Tensor loss(const Tensor& outputs, const std::vector<std::int64_t>& samples) const {
    const Tensor difference = outputs - rows(targets, samples).to(outputs.device());
    return mean(difference * difference);
  }
  [[nodiscard]] static Tensor rows(const Tensor& all, const std::vector<std::int64_t>& samples) {
    std::vector<float> out;
    for (const std::int64_t s : samples) {
      const auto row = all.select(0, s).contiguous().to_vector<float>();
      out.insert(out.end(), row.begin(), row.end());
    }
    return from_vector(out, {std::ssize(samples), all.size(1)});
  }
  Tensor inputs, targets;
};

std::vector<std::vector<std::int64_t>> batches_of(const std::vector<std::int64_t>& samples) {
  std::vector<std::vector<std::int64_t>> out;
  for (auto at = samples.begin(); at != samples.end(); at += kPerStepBatch)
    out.emplace_back(at, at + kPerStepBatch);
  return out;
}

SGDOptions sgd() { return {.lr = 0.05, .momentum = 0.9}; }

std::vector<float> parameters_of(const Module& model) {
  std::vector<float> out;
  for (const Tensor& p : model.parameters()) {
    const auto values = p.detach().cpu().to_vector<float>();
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

std::string digest_of(const Module& model, const Optimizer& optimizer, double scale,
                      std::int64_t updates) {
  Sha256 hash;
  const std::vector<float> values = parameters_of(model);
  hash.update(std::as_bytes(std::span(values)));
  hash.update(std::as_bytes(std::span(&scale, 1)));
  hash.update(std::as_bytes(std::span(&updates, 1)));
  for (const auto& [name, tensor] : optimizer.state_dict()) {
    if (name.rfind("state.", 0) != 0) continue;
    const Tensor t = tensor.cpu().contiguous();
    hash.update({data_of(t), size_in_bytes(t).value});
  }
  return hash.hex().substr(0, 16);
}

class Child {
 public:
  Child(const PerStepPlan& plan, Board& board, int rank, std::uint16_t port, std::FILE* report)
      : plan_(plan), board_(board), rank_(rank), port_(port), report_(report) {}

  int run() {
    const Training data;
    MLP model({5, 7, 3});
    comm::GroupOptions group = plan_.group;
    if (group.device.is_cuda()) group.device.index = (group.device.index + rank_) % device_count();
    const DeviceGuard guard(group.device);
    model.to(group.device);
    SGD optimizer(model.parameters(), sgd());
    StepSampler sampler(kPerStepSamples, kPerStepBatch, kPerStepSeed, plan_.accumulate);
    GradScaler scaler({.enabled = !plan_.overflows.empty()});
    std::int64_t step = 0;
    register_post_accumulate_grad_hook(model.parameters()[0],
                                       [&](const Tensor&) { die(step, Death::reducing); });
    PerStepOptions options;
    options.group = group;
    options.ddp = {.bucket_cap_mb = 1e-4, .first_bucket_mb = 1e-4, .overlap = Overlap::on};
    options.scaler = &scaler;
    options.save = [&] {
      return Metadata{{"epoch", std::to_string(sampler.state().epoch)},
                      {"used", std::to_string(sampler.state().used)}};
    };
    options.load = [&](const Metadata& values) {
      sampler.load_state({std::stoll(values.at("epoch")), std::stoll(values.at("used"))});
    };
    options.begin = [&](bool) {
      return PerStepOptions::Begin{plan_.begin, plan_.begin, {}, rank_ == plan_.odd ? "B" : "A"};
    };
    const StopRequest stop;
    options.stop = &stop;
    options.at = [&](PerStepMoment moment) {
      if (moment == PerStepMoment::meeting) die(step, Death::meeting);
      if (moment == PerStepMoment::sending) die(step, Death::sending);
      if (moment == PerStepMoment::receiving) die(step, Death::receiving);
      if (moment == PerStepMoment::counted) die(step, Death::counted);
      if (moment != PerStepMoment::voting) return;
      die(step, Death::voting);
      await_joiners(step);
    };
    PerStepTraining training(
        model, optimizer,
        std::make_shared<StoreClient>(comm::tcp::Address{"127.0.0.1", port_}, kSecret,
                                      Deadline::in(std::chrono::seconds(10))),
        rank_, options);
    self_ = &training;
    while (!training.over() && training.step() < plan_.steps && !training.stop_asked()) {
      step = training.step();
      const auto quorum = training.quorum();
      std::vector<std::int64_t> mine;
      const auto counted =
          training.try_gradients([&](DistributedDataParallel& ddp, const Turn& turn) {
            die(step, Death::forward);
            if (plan_.stop && plan_.stop->rank == rank_ && plan_.stop->step == step && !stop.here())
              raise(SIGTERM);
            mine = sampler.indices(turn.rank, turn.ranks);
            const bool overflows =
                turn.rank == 0 && std::ranges::count(plan_.overflows, turn.step) > 0;
            std::vector<std::vector<std::int64_t>> batches = batches_of(mine);
            const double share = 1 / static_cast<double>(batches.size());
            double sum = 0;
            const auto micro_step = [&](const std::vector<std::int64_t>& samples) {
              const Tensor x = Training::rows(data.inputs, samples).to(group.device);
              const Tensor loss = data.loss(ddp.forward(x), samples) * share;
              sum += loss.item<float>();
              scaler.scale(overflows ? loss * 1e38 : loss).backward();
            };
            for (; batches.size() > 1; batches.erase(batches.begin())) {
              const auto local = ddp.no_sync();
              micro_step(batches.front());
            }
            micro_step(batches.front());
            return sum;
          });
      if (counted) {
        scaler.unscale_(optimizer);
        sampler.step_done(counted->ranks);
        const bool made = scaler.step(optimizer);
        scaler.update();
        training.update_done(made);
        say(fmt::format("counted {} {} {} {} {} {} {} {}", step, quorum.id, quorum.joining,
                        digest_of(model, optimizer, scaler.get_scale(), training.updates()),
                        quorum.ranks.size(), fmt::join(quorum.ranks, " "), mine.size(),
                        fmt::join(mine, " ")));
      } else if (!training.stop_asked()) {
        say("failed");
      }
    }
    step = plan_.steps;
    if (!training.over()) training.finish([](comm::ProcessGroup& all) { all.barrier(); });
    say(fmt::format("end {}", fmt::join(parameters_of(model), " ")));
    return 0;
  }

 private:
  void say(const std::string& line) {
    std::fprintf(report_, "%s\n", line.c_str());
    std::fflush(report_);
  }

  void die(std::int64_t step, Death death) {
    for (std::size_t k = 0; k < plan_.kills.size(); ++k) {
      const Kill& kill = plan_.kills[k];
      if (kill.rank != rank_ || kill.step != step || kill.death != death) continue;
      if (board_.done[k].exchange(1) != 0) continue;
      board_.lost_in[rank_] = self_->quorum().id;
      raise(SIGKILL);
    }
    for (const Kill& trouble : plan_.troubles)
      if (!troubled_ && trouble.rank == rank_ && trouble.step == step && trouble.death == death) {
        troubled_ = true;
        throw CommError("trouble");
      }
  }

  // Blocks the current try until the returning ranks have asked to join, so that they join in the
  // next step.
  void await_joiners(std::int64_t step) const {
    const std::vector<int>& there = self_->quorum().ranks;
    std::uint64_t expected = 0;
    for (std::size_t k = 0; k < plan_.kills.size(); ++k)
      if (plan_.kills[k].returns && returns_in(plan_.kills[k]) == step && board_.done[k] != 0 &&
          std::ranges::find(there, plan_.kills[k].rank) == there.end())
        ++expected;
    while (board_.joiners < expected) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // Returns the step during which a lost rank asks to join: the step in which it was lost, or the
  // next one if that step counted.
  [[nodiscard]] static std::int64_t returns_in(const Kill& kill) {
    return kill.step + (kill.death == Death::counted ? 1 : 0);
  }

  const PerStepPlan& plan_;
  Board& board_;
  int rank_;
  std::uint16_t port_;
  std::FILE* report_;
  bool troubled_ = false;
  const PerStepTraining* self_ = nullptr;
};

struct Rank {
  pid_t pid = -1;
  bool returns = false;          // restarted after the others have given up its last quorum
  int report = -1, errors = -1;  // memory files
};

void start(Rank& rank, int number, const PerStepPlan& plan, Board& board, std::uint16_t port) {
  rank.pid = fork();
  require(rank.pid >= 0, "fork failed");
  if (rank.pid != 0) return;
  dup2(rank.errors, STDERR_FILENO);
  std::FILE* const report = fdopen(rank.report, "a");
  _exit(run_main("rank", [&] { return Child(plan, board, number, port, report).run(); }));
}

template <class T>
std::vector<T> read_list(std::istringstream& in) {
  std::size_t n = 0;
  in >> n;
  std::vector<T> out(n);
  for (T& value : out) in >> value;
  return out;
}

void read_report(const std::string& text, int rank, PerStepResult& result) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream in(line);
    std::string kind;
    in >> kind;
    if (kind == "failed") ++result.failed;
    if (kind == "counted") {
      CountedStep s;
      in >> s.step >> s.quorum >> s.joining >> s.digest;
      s.ranks = read_list<int>(in);
      s.samples = read_list<std::int64_t>(in);
      result.steps[static_cast<std::size_t>(rank)].push_back(std::move(s));
    }
    if (kind == "end") {
      auto& mine = result.parameters[static_cast<std::size_t>(rank)];
      for (float value = 0; in >> value;) mine.push_back(value);
    }
  }
}

}  // namespace

PerStepResult run_per_step(const PerStepPlan& plan) {
  const auto world = static_cast<std::size_t>(plan.world);
  require(plan.world <= kMostRanks && plan.kills.size() <= kMostKills, "too many");
  auto* const board = static_cast<Board*>(
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  require(board != MAP_FAILED, "no shared mapping");
  PerStepResult result;
  result.steps.resize(world);
  result.parameters.resize(world);
  result.processes.assign(world, 1);
  result.errors.resize(world);
  result.codes.assign(world, -1);
  {
    StoreServer server(kSecret, {.quorums = comm::store::CoordinatorOptions{plan.world, plan.least,
                                                                            plan.patience}});
    std::vector<Rank> ranks(world);
    for (std::size_t r = 0; r < world; ++r) {
      ranks[r].report = memfd_create("report", 0);
      ranks[r].errors = memfd_create("errors", 0);
      fcntl(ranks[r].report, F_SETFL, O_APPEND);
      start(ranks[r], static_cast<int>(r), plan, *board, server.port());
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (std::size_t running = world; running > 0;) {
      board->joiners = server.counters().joiners.load();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const bool late = std::chrono::steady_clock::now() > end;
      for (std::size_t r = 0; r < world; ++r) {
        if (ranks[r].returns && server.counters().quorum > board->lost_in[r]) {
          ranks[r].returns = false;
          ++result.processes[r];
          start(ranks[r], static_cast<int>(r), plan, *board, server.port());
        }
        if (late && ranks[r].returns) --running;
        ranks[r].returns = ranks[r].returns && !late;
        if (ranks[r].pid <= 0) continue;
        if (late) kill(ranks[r].pid, SIGKILL);
        int status = 0;
        if (waitpid(ranks[r].pid, &status, late ? 0 : WNOHANG) != ranks[r].pid) continue;
        ranks[r].pid = -1;
        bool again = false;
        for (const Kill& kill : plan.kills)
          again = again || (kill.rank == static_cast<int>(r) && kill.returns);
        if (WIFSIGNALED(status) && again && !late) {
          ranks[r].returns = true;
          continue;
        }
        result.codes[r] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        --running;
      }
    }
    for (std::size_t r = 0; r < world; ++r) {
      read_report(contents(ranks[r].report), static_cast<int>(r), result);
      result.errors[r] = contents(ranks[r].errors);
      close(ranks[r].report);
      close(ranks[r].errors);
    }
  }
  munmap(board, sizeof(Board));
  return result;
}

std::vector<float> run_serially(const PerStepPlan& plan, const std::vector<CountedStep>& history) {
  const Training data;
  MLP model({5, 7, 3});
  SGD optimizer(model.parameters(), sgd());
  StepSampler sampler(kPerStepSamples, kPerStepBatch, kPerStepSeed, plan.accumulate);
  for (const CountedStep& step : history) {
    const int ranks = static_cast<int>(step.ranks.size()) - step.joining;
    optimizer.zero_grad();
    for (int r = 0; r < ranks; ++r) {
      const auto samples = sampler.indices(r, ranks);
      const Tensor loss = data.loss(model.forward(Training::rows(data.inputs, samples)), samples);
      (loss * (1.0 / ranks)).backward();
    }
    sampler.step_done(ranks);
    if (std::ranges::count(plan.overflows, step.step) == 0) optimizer.step();
  }
  return parameters_of(model);
}

}  // namespace ringsmith::test
