// The coordinator: who takes part in the next step of a training that goes on without the ranks
// that it loses (runtime/parallel/per_step.hpp), and whether the last step counts.
//
//     rank 0   ask: my step 7 is done   --.                   .--> step 7 counts; quorum 3:
//     rank 1   ask: my step 7 is done   ---+-- coordinator ---+--> ranks 0 1 2, and 2 joins
//     rank 2   ask: I am new            --'                   '
//
// Each rank asks before each step, and the answer comes when all members of the last quorum have
// asked or are lost. It says both things at once, so they cost one round trip. A step counts if
// every member votes yes; who is lost before its vote has voted no. The number of the quorum grows
// when its members change, and when a step has failed: their group is then made anew.
//
// Members stand in the order of their coming: who was there longest is first, so the first always
// has the training's state, and the order of all sums follows from the history of who was there.
// Those that come together are ordered by rank. They are members at once, as the last `joining`
// ones, and get the state during their first step. A member that is silent for long is lost.
//
// The idea is torchft's lighthouse (github.com/pytorch/torchft); here its place is beside the
// table of the launcher's store, whose connections also say who is lost. There is one coordinator;
// without it the job ends. No threads, no sockets, no clock: store/server.hpp has them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ringsmith::comm::store {

// Set for the ranks of a job that has a coordinator.
inline constexpr const char* kPerStepVariable = "RINGSMITH_PER_STEP";

// What the groups of quorums write into the store begins so. It goes when the next quorum stands.
inline constexpr const char* kQuorumKeys = "quorum/";

enum class Vote : std::uint8_t { none, yes, no };

struct QuorumAsk {
  int rank = 0;
  std::string who;         // "pid 4711 on host a"
  Vote vote = Vote::none;  // on the step of the quorum it is in; none: it is in no quorum
  bool last = false;       // nothing is to follow if the step counts

  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static QuorumAsk decode(const std::string& text);  // CommError if it is not one
};

struct QuorumAnswer {
  bool counts = false;     // the step that was voted on
  bool over = false;       // the training is: nothing follows
  std::int64_t id = 0;     // of the quorum, from 1
  std::int64_t step = 0;   // the one to do: so many have counted
  std::vector<int> ranks;  // the members, by seniority
  int joining = 0;         // of them, the last: they have no state yet
  bool operator==(const QuorumAnswer&) const = default;

  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static QuorumAnswer decode(const std::string& text);
};

struct CoordinatorOptions {
  int world = 1;  // ranks that the launcher starts: the first quorum waits for all of them
  int least = 1;  // members of a quorum
  std::chrono::milliseconds patience{60'000};  // from the first member's asking to the quorum
};

class Coordinator {
 public:
  using Clock = std::chrono::steady_clock;
  using Caller = const void*;  // a connection; compared, never used

  explicit Coordinator(CoordinatorOptions options)
      : options_(options), counted_(static_cast<std::size_t>(options.world)) {}

  // UsageError for a rank beyond the world.
  void ask(Caller caller, QuorumAsk ask, Clock::time_point now);
  // The connection has ended. At once, whatever the reason.
  void lost(Caller caller, Clock::time_point now);

  // For a caller that has asked; once. failed: the training cannot go on, and `text` says why.
  struct Reply {
    bool failed = false;
    std::string text;  // QuorumAnswer::encode(), or why
  };
  [[nodiscard]] std::optional<Reply> take_reply(Caller caller, Clock::time_point now);
  // A caller that was silent for too long: it is no member any more, and its connection is to end.
  [[nodiscard]] bool is_dropped(Caller caller) const;
  // The ranks of those, each once: their processes may hang.
  [[nodiscard]] std::vector<int> take_silent_ranks() { return std::exchange(silent_ranks_, {}); }
  // Members of the quorum that will not meet the others any more, each once: lost, or voted no.
  struct GivenUp {
    std::int64_t quorum = 0;
    int place = 0;
    std::string text;  // for their group, in which its rank is its place
  };
  [[nodiscard]] std::vector<GivenUp> take_given_up() { return std::exchange(given_up_, {}); }
  // When take_reply() must be tried at the latest.
  [[nodiscard]] std::optional<Clock::time_point> alarm() const { return due_; }

  [[nodiscard]] std::int64_t quorum() const { return id_; }  // the last one
  [[nodiscard]] std::size_t joiners() const;                 // that have asked, and wait
  [[nodiscard]] bool over() const { return over_; }
  // By rank: steps that have counted with it.
  [[nodiscard]] const std::vector<std::int64_t>& counted() const { return counted_; }
  // Why the training has failed; "" unless it has.
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  struct Worker {
    Caller caller = nullptr;  // nullptr: lost
    int rank = 0;
    std::string who;
    bool has_state = false;
    Vote vote = Vote::none;
    bool last = false;
    bool waits = false;  // it has asked, and has no answer yet
    std::optional<Reply> reply = {};
  };
  [[nodiscard]] Worker* find(Caller caller);
  void settle(Clock::time_point now);
  [[nodiscard]] bool drop_silent();  // was there one?
  void give_up(const Worker& member, const char* how);
  void form(bool counts);
  void answer_all(bool counts);
  void fail(const std::string& why);
  [[nodiscard]] std::string name_missing() const;

  CoordinatorOptions options_;
  std::vector<Worker> members_;  // of the last quorum, by seniority; lost ones until the next
  std::vector<Worker> joiners_;
  std::vector<Caller> dropped_;
  std::vector<int> silent_ranks_;
  std::vector<GivenUp> given_up_;
  std::optional<Clock::time_point> due_;  // of the quorum to come, once somebody waits for it
  std::int64_t id_ = 0, step_ = 0;
  std::vector<std::int64_t> counted_;
  bool over_ = false;
  std::string failure_;
};

}  // namespace ringsmith::comm::store
