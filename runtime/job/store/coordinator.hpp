// The coordinator of a training run that continues without the ranks that it loses
// (runtime/parallel/beyond/per_step.hpp). It decides which ranks take part in the next step, and
// whether the last step counts.
//
//     rank 0   ask: my step 7 is done   --.                   .--> step 7 counts; quorum 3:
//     rank 1   ask: my step 7 is done   ---+-- coordinator ---+--> ranks 0 1 2, and 2 joins
//     rank 2   ask: I am new            --'                   '
//
// Each rank asks before each step. The answer arrives when all members of the last quorum have
// asked or are lost, so both decisions cost one round trip. A step counts if every member votes
// yes; a member that is lost before its vote counts as a no. When the members change or a step has
// failed, the quorum's number increases, and the members form a new group.
//
// Members are ordered by seniority, so the first always has the training's state, and the order of
// all sums follows from the history of the membership. Ranks that join together are ordered by
// rank. They become members immediately, as the last `joining` members, and receive the state
// during their first step. A member that is silent for too long counts as lost.
//
// The idea comes from torchft's lighthouse (github.com/pytorch/torchft). Here the coordinator runs
// in the server of the launcher's store (server.hpp), whose connections also reveal which ranks are
// lost. There is only one coordinator, and the job ends with it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ringsmith::comm::store {

// Environment variable, set for the ranks of a job with a coordinator.
inline constexpr const char* kPerStepVariable = "RINGSMITH_PER_STEP";

// Prefix of the keys that the quorums' groups write into the store. The next quorum removes them.
inline constexpr const char* kQuorumKeys = "quorum/";

enum class Vote : std::uint8_t { none, yes, no };

struct QuorumAsk {
  int rank = 0;
  std::string who;         // "pid 4711 on host a"
  Vote vote = Vote::none;  // on the step of its quorum; none: it is not in a quorum
  bool last = false;       // the training ends if the step counts and all members say so

  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static QuorumAsk decode(const std::string& text);  // throws CommError
};

struct QuorumAnswer {
  bool counts = false;     // the step that the members voted on counts
  bool over = false;       // the training has ended
  std::int64_t id = 0;     // number of the quorum, from 1
  std::int64_t step = 0;   // the next step = number of steps that have counted
  std::vector<int> ranks;  // the members, by seniority
  int joining = 0;         // number of members that lack the state: the last ones
  bool operator==(const QuorumAnswer&) const = default;

  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static QuorumAnswer decode(const std::string& text);
};

struct CoordinatorOptions {
  int world = 1;  // ranks that the launcher starts; the first quorum waits for all of them
  int least = 1;  // minimum number of members of a quorum
  // Time from the first member's request until a quorum forms without the missing ranks.
  std::chrono::milliseconds patience{60'000};
};

class Coordinator {
 public:
  using Clock = std::chrono::steady_clock;
  using Caller = const void*;  // identifies a connection; never dereferenced

  explicit Coordinator(CoordinatorOptions options)
      : options_(options), counted_(static_cast<std::size_t>(options.world)) {}

  // Throws UsageError if the rank is outside the world.
  void ask(Caller caller, QuorumAsk ask, Clock::time_point now);
  // Must be called as soon as the connection has ended.
  void lost(Caller caller, Clock::time_point now);

  // The reply to a caller that has asked, returned once. failed: the training cannot continue.
  struct Reply {
    bool failed = false;
    std::string text;  // QuorumAnswer::encode(), or the reason for the failure
  };
  [[nodiscard]] std::optional<Reply> take_reply(Caller caller, Clock::time_point now);
  // True if the caller was silent for too long, or a new process has its rank. Its connection must
  // be closed.
  [[nodiscard]] bool is_dropped(Caller caller) const;
  // Returns the ranks that were dropped because of their silence since the last call. Their
  // processes may be hanging.
  [[nodiscard]] std::vector<int> take_silent_ranks() { return std::exchange(silent_ranks_, {}); }
  // Members that have left their quorum since the last call, because they are lost or voted no.
  struct GivenUp {
    std::int64_t quorum = 0;
    int place = 0;     // the member's rank in the quorum's group
    std::string text;  // error message for the other members of that group
  };
  [[nodiscard]] std::vector<GivenUp> take_given_up() { return std::exchange(given_up_, {}); }
  // Returns the time by which take_reply() must be called again.
  [[nodiscard]] std::optional<Clock::time_point> alarm() const { return due_; }

  [[nodiscard]] std::int64_t quorum() const { return id_; }  // number of the last quorum
  // Number of ranks that wait to join; 0 before the first quorum.
  [[nodiscard]] std::size_t joiners() const;
  [[nodiscard]] bool over() const { return over_; }
  // By rank: number of steps that have counted with it as a member.
  [[nodiscard]] const std::vector<std::int64_t>& counted() const { return counted_; }
  // Returns why the training has failed, or an empty string if it has not.
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  struct Worker {
    Caller caller = nullptr;  // nullptr: lost
    int rank = 0;
    std::string who;
    bool has_state = false;
    Vote vote = Vote::none;
    bool last = false;
    bool waits = false;  // it has asked and has no answer yet
    std::optional<Reply> reply = {};
  };
  [[nodiscard]] Worker* find(Caller caller);
  void settle(Clock::time_point now);
  [[nodiscard]] bool drop_silent();  // true if it dropped any
  void give_up(const Worker& member, const char* how);
  void form(bool counts);
  void answer_all(bool counts);
  void fail(const std::string& why);
  [[nodiscard]] std::string name_missing() const;

  CoordinatorOptions options_;
  std::vector<Worker> members_;  // of the last quorum, by seniority, with those lost since then
  std::vector<Worker> joiners_;
  std::vector<Caller> dropped_;
  std::vector<int> silent_ranks_;
  std::vector<GivenUp> given_up_;
  std::optional<Clock::time_point> due_;  // deadline of the next quorum, once a rank waits for it
  std::int64_t id_ = 0, step_ = 0;
  std::vector<std::int64_t> counted_;
  bool over_ = false;
  std::string failure_;
};

}  // namespace ringsmith::comm::store
