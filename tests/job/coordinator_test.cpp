// Tests the quorum coordinator, which decides which ranks take part in the next step and whether
// the last step counts. Callers and times are simulated.
#include "runtime/job/store/coordinator.hpp"

#include <array>
#include <map>

#include "runtime/base/error.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm::store;
using namespace std::chrono_literals;

namespace {

// Simulated ranks: each caller is the address of a character in an array.
class Job {
 public:
  explicit Job(int world, int least) : coordinator_({world, least, 10s}) {}

  void ask(int who, Vote vote = Vote::none, bool last = false) {
    coordinator_.ask(caller(who), {who % 10, "rank " + std::to_string(who), vote, last}, now_);
  }
  void lose(int who) { coordinator_.lost(caller(who), now_); }
  void pass(std::chrono::milliseconds time) { now_ += time; }
  // Returns e.g. "counts over q1 s2: 0 1 2 +1" ("no" instead of "counts"; "over" if the training
  // has ended; quorum, step, ranks, number of joining ranks), "failed: why" or "waits".
  std::string answer(int who) {
    const auto reply = coordinator_.take_reply(caller(who), now_);
    if (!reply) return "waits";
    if (reply->failed) return "failed: " + reply->text;
    const QuorumAnswer a = QuorumAnswer::decode(reply->text);
    std::string text = std::string(a.counts ? "counts" : "no") + (a.over ? " over" : "") + " q" +
                       std::to_string(a.id) + " s" + std::to_string(a.step) + ":";
    for (const int rank : a.ranks) text += " " + std::to_string(rank);
    return text + (a.joining > 0 ? " +" + std::to_string(a.joining) : "");
  }
  void all(const std::vector<int>& who, const std::string& expected) {
    for (const int w : who) {
      INFO("caller " << w);
      CHECK(answer(w) == expected);
    }
  }
  void step(const std::vector<int>& who, const std::string& expected) {
    for (const int w : who) ask(w, Vote::yes);
    all(who, expected);
  }
  Coordinator& coordinator() { return coordinator_; }
  [[nodiscard]] Coordinator::Caller caller(int who) const { return &callers_.at(std::size_t(who)); }

 private:
  std::array<char, 100> callers_{};
  Coordinator::Clock::time_point now_{};
  Coordinator coordinator_;
};

Job three_ranks(int least = 2) {
  Job job(3, least);
  for (const int w : {2, 0, 1}) job.ask(w);
  job.all({0, 1, 2}, "no q1 s0: 0 1 2");
  job.step({0, 1, 2}, "counts q1 s1: 0 1 2");
  job.step({2, 1, 0}, "counts q1 s2: 0 1 2");
  return job;
}

}  // namespace

TEST_CASE("the first quorum waits for all ranks, later ones for all members", "[coordinator]") {
  Job job(3, 2);
  job.ask(1);
  job.ask(0);
  CHECK(job.answer(0) == "waits");
  job.ask(2);
  job.all({0, 1, 2}, "no q1 s0: 0 1 2");
  job.ask(0, Vote::yes);
  job.ask(2, Vote::yes);
  CHECK(job.answer(0) == "waits");
  job.ask(1, Vote::yes);
  job.all({0, 1, 2}, "counts q1 s1: 0 1 2");
  CHECK(job.answer(0) == "waits");  // an answer is given only once
}

TEST_CASE("who comes late to the first quorum joins the second", "[coordinator]") {
  Job job(3, 2);
  job.ask(1);
  job.ask(0);
  job.pass(9999ms);
  CHECK(job.answer(0) == "waits");
  job.pass(1ms);
  job.all({0, 1}, "no q1 s0: 0 1");
  job.ask(2);
  job.step({0, 1}, "counts q2 s1: 0 1 2 +1");
  CHECK(job.answer(2) == "counts q2 s1: 0 1 2 +1");
}

TEST_CASE("a rank lost before its vote: the step fails, and the others do it again",
          "[coordinator]") {
  Job job = three_ranks();
  job.ask(0, Vote::no);
  job.lose(1);
  CHECK(job.answer(0) == "waits");
  job.ask(2, Vote::yes);
  job.all({0, 2}, "no q2 s2: 0 2");
  job.step({0, 2}, "counts q2 s3: 0 2");
}

TEST_CASE("a rank lost after its vote: the step counts", "[coordinator]") {
  Job job = three_ranks();
  job.ask(1, Vote::yes);
  job.lose(1);
  job.ask(0, Vote::yes);
  job.ask(2, Vote::yes);
  job.all({0, 2}, "counts q2 s3: 0 2");
}

TEST_CASE("a rank lost between answer and vote: at the vote it has no voice", "[coordinator]") {
  Job job = three_ranks();
  job.step({0, 1, 2}, "counts q1 s3: 0 1 2");
  job.lose(0);  // its yes vote was for the previous step
  job.ask(1, Vote::yes);
  job.ask(2, Vote::yes);
  job.all({1, 2}, "no q2 s3: 1 2");
}

TEST_CASE("one no is enough, and makes a new quorum of the same members", "[coordinator]") {
  Job job = three_ranks();
  job.ask(0, Vote::yes);
  job.ask(1, Vote::no);
  job.ask(2, Vote::yes);
  job.all({0, 1, 2}, "no q2 s2: 0 1 2");
}

TEST_CASE("who joins is last, gets the state in its first step, and keeps its place",
          "[coordinator]") {
  Job job = three_ranks(1);
  job.lose(0);
  job.ask(10);  // rank 0, started again
  job.ask(1, Vote::no);
  job.ask(2, Vote::no);
  job.all({1, 2, 10}, "no q2 s2: 1 2 0 +1");
  SECTION("and has the state when the step counts") {
    job.step({1, 2, 10}, "counts q2 s3: 1 2 0");
    job.lose(1);
    job.ask(11);
    job.step({2, 10}, "no q3 s3: 2 0 1 +1");
  }
  SECTION("not when the step fails") {
    job.ask(1, Vote::yes);
    job.ask(2, Vote::yes);
    job.ask(10, Vote::no);
    job.all({1, 2, 10}, "no q3 s2: 1 2 0 +1");
  }
  SECTION("several: by rank") {
    job.lose(1);
    job.ask(11);
    job.lose(2);
    CHECK(job.answer(10) == "waits");  // it takes part in the step
    job.ask(10, Vote::no);
    CHECK_THAT(job.answer(10), ContainsSubstring("no remaining rank"));
  }
}

TEST_CASE("two come at once: by rank, behind the others", "[coordinator]") {
  Job job = three_ranks(1);
  job.lose(0);
  job.lose(1);
  job.ask(11);
  job.ask(10);
  CHECK(job.coordinator().joiners() == 2);
  job.ask(2, Vote::no);
  job.all({2, 10, 11}, "no q2 s2: 2 0 1 +2");
  CHECK(job.coordinator().joiners() == 0);
}

TEST_CASE("a rank that joins does not hurry the members", "[coordinator]") {
  Job job = three_ranks();
  job.lose(0);
  job.ask(10);
  job.pass(1h);
  CHECK(job.answer(10) == "waits");
  job.ask(1, Vote::no);
  job.ask(2, Vote::no);
  job.all({1, 2, 10}, "no q2 s2: 1 2 0 +1");
}

TEST_CASE("a silent member is dropped, and named", "[coordinator]") {
  Job job = three_ranks();
  job.ask(0, Vote::no);
  job.ask(2, Vote::no);
  job.pass(9999ms);
  CHECK(job.answer(0) == "waits");
  CHECK_FALSE(job.coordinator().is_dropped(job.caller(1)));
  job.pass(1ms);
  job.all({0, 2}, "no q2 s2: 0 2");
  CHECK(job.coordinator().is_dropped(job.caller(1)));
  CHECK(job.coordinator().take_silent_ranks() == std::vector{1});
  CHECK(job.coordinator().take_silent_ranks().empty());
  job.lose(1);
  CHECK_FALSE(job.coordinator().is_dropped(job.caller(1)));
}

TEST_CASE("too few without a silent member: it has as long again to return", "[coordinator]") {
  Job job = three_ranks(3);
  job.ask(0, Vote::no);
  job.pass(3s);
  job.ask(2, Vote::no);
  job.pass(7s);
  CHECK(job.answer(0) == "waits");
  CHECK(job.coordinator().take_silent_ranks() == std::vector{1});
  job.lose(1);
  job.pass(9999ms);
  CHECK(job.answer(0) == "waits");
  SECTION("it returns") {
    job.ask(11);
    job.all({0, 2, 11}, "no q2 s2: 0 2 1 +1");
  }
  SECTION("it does not") {
    job.pass(1ms);
    CHECK_THAT(job.answer(2), ContainsSubstring("only 2 of 3 ranks are present, 3 are needed"));
  }
}

TEST_CASE("a wait of which nobody is left does not count for those who come later",
          "[coordinator]") {
  SECTION("for the first quorum") {
    Job job(3, 2);
    job.ask(0);
    job.lose(0);
    job.pass(1h);
    job.ask(10);
    CHECK(job.answer(10) == "waits");
    job.pass(9999ms);
    job.ask(1);
    CHECK(job.answer(10) == "waits");
    job.pass(1ms);
    job.all({10, 1}, "no q1 s0: 0 1");
  }
  SECTION("for a later one, before the first step counts") {
    Job job(3, 2);
    for (const int w : {0, 1, 2}) job.ask(w);
    job.all({0, 1, 2}, "no q1 s0: 0 1 2");
    job.ask(1, Vote::no);
    for (const int w : {0, 1, 2}) job.lose(w);
    job.pass(1h);
    job.ask(11);
    CHECK(job.answer(11) == "waits");
    job.ask(10);
    job.all({10, 11}, "no q2 s0: 0 1");
  }
}

TEST_CASE("a rank beyond the world is refused", "[coordinator]") {
  Job job(3, 2);
  CHECK_THROWS_WITH(job.ask(3), ContainsSubstring("rank 3") && ContainsSubstring("of 3 ranks"));
  CHECK(job.coordinator().joiners() == 0);
  CHECK_FALSE(job.coordinator().alarm());
}

TEST_CASE("a new process takes the number of one that is still connected", "[coordinator]") {
  Job job = three_ranks();
  job.ask(11);  // rank 1, started again
  CHECK(job.coordinator().is_dropped(job.caller(1)));
  job.ask(0, Vote::no);
  job.ask(2, Vote::no);
  job.all({0, 2, 11}, "no q2 s2: 0 2 1 +1");
}

TEST_CASE("too few wait for more; then the training fails, naming who is missing",
          "[coordinator]") {
  Job job = three_ranks(2);
  job.lose(0);
  job.lose(2);
  job.ask(1, Vote::no);
  job.pass(9s);
  CHECK(job.answer(1) == "waits");
  SECTION("one comes") {
    job.ask(12);
    job.all({1, 12}, "no q2 s2: 1 2 +1");
  }
  SECTION("nobody comes") {
    job.pass(1s);
    const std::string words =
        "failed: only 1 of 3 ranks are present, 2 are needed (--min-ranks), and none has joined "
        "for 10.0 s: ranks 0, 2 are missing";
    CHECK(job.answer(1) == words);
    job.ask(12);
    CHECK(job.answer(12) == words);  // callers that arrive later
    CHECK_FALSE(job.coordinator().failure().empty());
  }
}

TEST_CASE("a step that is decided while too few are there still counts", "[coordinator]") {
  Job job = three_ranks(2);
  job.ask(0, Vote::yes);
  job.ask(2, Vote::yes);
  job.lose(0);
  job.lose(2);
  job.ask(1, Vote::yes);
  CHECK(job.answer(1) == "waits");
  job.ask(10);
  CHECK(job.answer(1) == "counts q2 s3: 1 0 +1");
  CHECK(job.answer(10) == "counts q2 s3: 1 0 +1");
}

TEST_CASE("without any rank that has the state the training fails", "[coordinator]") {
  Job job = three_ranks(1);
  for (const int w : {0, 1, 2}) job.lose(w);
  job.ask(10);
  CHECK(job.answer(10) == "failed: no remaining rank has the training state after 2 steps");
}

TEST_CASE("before the first step counts all have the same state", "[coordinator]") {
  Job job(2, 1);
  job.ask(0);
  job.ask(1);
  job.all({0, 1}, "no q1 s0: 0 1");
  job.lose(0);
  job.lose(1);
  job.ask(10);
  job.ask(11);
  job.all({10}, "no q2 s0: 0");
  job.ask(10, Vote::yes);
  job.all({10, 11}, "counts q3 s1: 0 1 +1");
}

TEST_CASE("the last step that counts ends the training, for those who come later too",
          "[coordinator]") {
  Job job = three_ranks();
  job.ask(0, Vote::yes, true);
  job.ask(1, Vote::yes, true);
  SECTION("it counts") {
    job.ask(2, Vote::yes, true);
    job.all({0, 1, 2}, "counts over q1 s3: 0 1 2");
    for (const int w : {0, 1, 2}) job.lose(w);
    job.ask(11);
    CHECK_THAT(job.answer(11), ContainsSubstring("no over"));
    CHECK(job.coordinator().failure().empty());
  }
  SECTION("it fails, and is done again") {
    job.lose(2);
    job.all({0, 1}, "no q2 s2: 0 1");
    job.ask(0, Vote::yes, true);
    job.ask(1, Vote::yes, true);
    job.all({0, 1}, "counts over q2 s3: 0 1");
  }
}

TEST_CASE("what travels between rank and coordinator", "[coordinator]") {
  const QuorumAsk ask{7, "pid 12 on host a", Vote::no, true};
  const QuorumAsk back = QuorumAsk::decode(ask.encode());
  CHECK(back.rank == 7);
  CHECK(back.who == ask.who);
  CHECK(back.vote == Vote::no);
  CHECK(back.last);
  const QuorumAnswer answer{true, false, 3, 41, {4, 0, 2}, 1};
  CHECK(QuorumAnswer::decode(answer.encode()) == answer);
  for (const char* bad : {"", "x", "1 3 0", "-1 0 0", "0 1"})
    CHECK_THROWS_AS(QuorumAsk::decode(bad), CommError);
  CHECK_THROWS_AS(QuorumAsk::decode("0 1 0 " + std::string(513, 'x')), CommError);
  CHECK_THROWS_AS(QuorumAnswer::decode("1 0 2"), CommError);
}
