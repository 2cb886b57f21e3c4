#include "runtime/analysis/pipeline.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>

#include "runtime/analysis/interpreter.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith::comm {

namespace {

const char* letter_of(PipelinePass pass) { return pass == PipelinePass::forward ? "F" : "B"; }
std::string pass_text(const StageAction& action) {
  return letter_of(action.pass) + std::to_string(action.microbatch);
}
std::string counted(int n, const std::string& thing, const char* plural = "s") {
  return std::to_string(n) + " " + thing + (n == 1 ? "" : plural);
}

constexpr PipelinePass kPasses[] = {PipelinePass::forward, PipelinePass::backward};

class PipelineChecker {
 public:
  PipelineChecker(const PipelineSchedule& schedule, const PipelineCheckOptions& options)
      : schedule_(schedule), options_(options) {}

  std::vector<Violation> run() {
    const auto parts = {&PipelineChecker::shape, &PipelineChecker::order,
                        &PipelineChecker::messages, &PipelineChecker::progress,
                        &PipelineChecker::memory};
    for (const auto part : parts)
      if (findings_.empty()) (this->*part)();
    return std::move(findings_);
  }

 private:
  void add(Fault fault, int stage, int step, std::string reason) {
    findings_.push_back({fault, stage, step, std::move(reason)});
  }
  [[nodiscard]] const std::vector<StageAction>& actions(int stage) const {
    return schedule_.actions[at(stage)];
  }

  // ---- 1. shape (numbers as in pipeline.hpp) ----
  void shape() {
    if (schedule_.stages < 1 || schedule_.microbatches < 1 ||
        schedule_.actions.size() != at(schedule_.stages))
      return add(Fault::shape, -1, -1,
                 counted(schedule_.stages, "stage") + " and " +
                     counted(schedule_.microbatches, "microbatch", "es") + ", but actions for " +
                     counted(static_cast<int>(schedule_.actions.size()), "stage"));
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      std::map<PipelinePass, std::vector<int>> runs;
      for (const PipelinePass pass : kPasses) runs[pass].assign(at(schedule_.microbatches), 0);
      for (int a = 0; a < static_cast<int>(actions(stage).size()); ++a) {
        const StageAction& action = actions(stage)[at(a)];
        if (action.microbatch < 0 || action.microbatch >= schedule_.microbatches)
          add(Fault::shape, stage, a,
              pass_text(action) + " is no pass of " +
                  counted(schedule_.microbatches, "microbatch", "es"));
        else if (++runs[action.pass][at(action.microbatch)] == 2)
          add(Fault::doubled, stage, a, pass_text(action) + " runs twice");
      }
      for (const PipelinePass pass : kPasses)
        for (int m = 0; m < schedule_.microbatches; ++m)
          if (runs[pass][at(m)] == 0)
            add(Fault::missing, stage, -1, pass_text({m, pass}) + " never runs");
    }
  }

  // ---- 2. order ----
  void order() {
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      std::vector<bool> ran(at(schedule_.microbatches), false);
      for (int a = 0; a < static_cast<int>(actions(stage).size()); ++a) {
        const StageAction& action = actions(stage)[at(a)];
        if (action.pass == PipelinePass::forward)
          ran[at(action.microbatch)] = true;
        else if (!ran[at(action.microbatch)])
          add(Fault::undefined_data, stage, a,
              pass_text(action) + " runs before " +
                  pass_text({action.microbatch, PipelinePass::forward}) +
                  ", whose activations it needs");
      }
    }
  }

  // ---- 3. messages ----
  void messages() {
    for (int stage = 0; stage < schedule_.stages; ++stage)
      for (const PipelinePass pass : kPasses) {
        const int source = source_of(schedule_, stage, pass);
        if (source == kNobody) continue;
        const std::vector<int> sent = in_order(source, pass), expected = in_order(stage, pass);
        const auto [mine, theirs] = std::ranges::mismatch(expected, sent);
        if (mine != expected.end())
          add(Fault::unmatched_receive, stage, -1,
              "message " + std::to_string(mine - expected.begin()) + " from stage " +
                  std::to_string(source) + " belongs to " + pass_text({*theirs, pass}) +
                  ", but this stage runs " + pass_text({*mine, pass}) + " with it");
      }
  }
  [[nodiscard]] std::vector<int> in_order(int stage, PipelinePass pass) const {
    std::vector<int> out;
    for (const StageAction& action : actions(stage))
      if (action.pass == pass) out.push_back(action.microbatch);
    return out;
  }

  // ---- 4. progress ----
  void progress() {
    const Schedule steps = messages_of(schedule_);
    for (const int slots : options_.slots) {
      const std::vector<Blocked> blocked = interpret(steps, {slots, false});
      for (const Blocked& b : blocked) {
        const int action = b.step / 2;
        add(Fault::deadlock, b.rank, action,
            "with " + counted(slots, "slot") + " per connection, " +
                pass_text(actions(b.rank)[at(action)]) +
                (b.sending ? " waits until its result may be sent to stage "
                           : " waits for a message of stage ") +
                std::to_string(b.peer));
      }
      if (!blocked.empty()) return;
    }
  }

  // ---- 5. memory ----
  void memory() {
    if (options_.most_stored == 0) return;
    const std::vector<int> stored = most_stored(schedule_);
    for (int stage = 0; stage < schedule_.stages; ++stage)
      if (stored[at(stage)] > options_.most_stored)
        add(Fault::memory, stage, -1,
            "stores the activations of " + std::to_string(stored[at(stage)]) +
                " microbatches, more than " + std::to_string(options_.most_stored));
  }

  const PipelineSchedule& schedule_;
  const PipelineCheckOptions& options_;
  std::vector<Violation> findings_;
};

}  // namespace

std::vector<Violation> check(const PipelineSchedule& schedule,
                             const PipelineCheckOptions& options) {
  return PipelineChecker(schedule, options).run();
}

std::vector<int> most_stored(const PipelineSchedule& schedule) {
  std::vector<int> out;
  for (const auto& actions : schedule.actions) {
    int stored = 0, most = 0;
    for (const StageAction& action : actions) {
      stored += action.pass == PipelinePass::forward ? 1 : -1;
      most = std::max(most, stored);
    }
    out.push_back(most);
  }
  return out;
}

Schedule messages_of(const PipelineSchedule& schedule) {
  Schedule out = empty_schedule(Algorithm::own, Collective::all_reduce, schedule.stages, 1, 1);
  for (int stage = 0; stage < schedule.stages; ++stage)
    for (const StageAction& action : schedule.actions[at(stage)]) {
      out.add(stage, {.recv_peer = source_of(schedule, stage, action.pass)});
      out.add(stage, {.send_peer = target_of(schedule, stage, action.pass)});
    }
  return out;
}

namespace {

// One direction of one pair of neighbours, as seen by both.
struct MessageTimes {
  std::vector<double> arrived;  // by message
  std::vector<double> taken;    // when the receiver has taken it out of its slot
};

class PipelineSimulator {
 public:
  PipelineSimulator(const PipelineSchedule& schedule, const PipelineCost& cost)
      : schedule_(schedule), cost_(cost) {
    for (const PipelinePass pass : kPasses)
      channels_[pass].resize(at(schedule.stages));  // by sender
    next_.resize(at(schedule.stages));
    free_.resize(at(schedule.stages));
    events_.resize(at(schedule.stages));
  }

  PipelineSimulation run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < schedule_.stages; ++stage)
        while (advance(stage)) moved = true;
    }
    PipelineSimulation out;
    double busy = 0;
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      require(next_[at(stage)] == 2 * schedule_.actions[at(stage)].size(),
              "simulate: stage " + std::to_string(stage) +
                  " of the pipeline never finishes; check() says why");
      for (const StageEvent& event : events_[at(stage)]) {
        out.events.push_back(event);
        out.seconds = std::max(out.seconds, event.finished);
        busy += event.finished - event.began;
      }
    }
    if (out.seconds > 0) out.bubble = 1 - busy / (out.seconds * schedule_.stages);
    return out;
  }

 private:
  // Runs the next half of an action of this stage, if it is possible: receive and compute, or send.
  bool advance(int stage) {
    const auto& actions = schedule_.actions[at(stage)];
    const std::size_t half = next_[at(stage)];
    if (half == 2 * actions.size()) return false;
    const StageAction& action = actions[half / 2];
    if (half % 2 == 0 ? !compute(stage, action) : !send(stage, action)) return false;
    ++next_[at(stage)];
    return true;
  }

  bool compute(int stage, const StageAction& action) {
    double& clock = free_[at(stage)];
    if (const int source = source_of(schedule_, stage, action.pass); source != kNobody) {
      MessageTimes& channel = channels_[action.pass][at(source)];
      if (channel.taken.size() == channel.arrived.size()) return false;
      clock = std::max(clock, channel.arrived[channel.taken.size()]);
      channel.taken.push_back(clock);
    }
    const double began = clock;
    clock += action.pass == PipelinePass::forward ? cost_.forward : cost_.backward;
    events_[at(stage)].push_back({stage, action, began, clock});
    return true;
  }

  // The stage waits for a slot; the message then travels while the stage continues. Messages of one
  // channel follow each other.
  bool send(int stage, const StageAction& action) {
    if (target_of(schedule_, stage, action.pass) == kNobody) return true;
    MessageTimes& channel = channels_[action.pass][at(stage)];
    double& clock = free_[at(stage)];
    const auto slots = static_cast<std::size_t>(cost_.slots);
    if (channel.arrived.size() >= slots) {
      const std::size_t before = channel.arrived.size() - slots;
      if (channel.taken.size() <= before) return false;
      clock = std::max(clock, channel.taken[before]);
    }
    const double transfer = cost_.bytes * cost_.link.beta;
    const double begins = channel.arrived.empty()
                              ? clock
                              : std::max(clock, channel.arrived.back() - cost_.link.alpha);
    channel.arrived.push_back(begins + cost_.link.alpha + transfer);
    return true;
  }

  const PipelineSchedule& schedule_;
  const PipelineCost& cost_;
  std::map<PipelinePass, std::vector<MessageTimes>> channels_;
  std::vector<std::size_t> next_;  // half actions done, by stage
  std::vector<double> free_;       // clock of each stage
  std::vector<std::vector<StageEvent>> events_;
};

}  // namespace

PipelineSimulation simulate(const PipelineSchedule& schedule, const PipelineCost& cost) {
  require(cost.slots >= 1,
          "simulate: a connection needs at least one slot, got " + std::to_string(cost.slots));
  return PipelineSimulator(schedule, cost).run();
}

double ideal_bubble(int stages, int microbatches) {
  return static_cast<double>(stages - 1) / (microbatches + stages - 1);
}

std::string draw(const PipelineSchedule& schedule) {
  const PipelineSimulation simulated = simulate(schedule, {.forward = 1, .backward = 1});
  const auto columns = static_cast<std::size_t>(std::lround(simulated.seconds));
  const std::size_t width = pass_text({schedule.microbatches - 1}).size() + 1;
  std::vector<std::vector<std::string>> rows(at(schedule.stages),
                                             std::vector<std::string>(columns, "."));
  for (const StageEvent& event : simulated.events)
    rows[at(event.stage)][static_cast<std::size_t>(std::lround(event.began))] =
        pass_text(event.action);
  std::string out;
  for (std::size_t stage = 0; stage < rows.size(); ++stage) {
    out += "stage " + std::to_string(stage) + " ";
    for (const std::string& cell : rows[stage]) out += std::string(width - cell.size(), ' ') + cell;
    out += "\n";
  }
  return out;
}

}  // namespace ringsmith::comm
