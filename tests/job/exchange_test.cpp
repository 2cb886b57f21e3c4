// A member dies after its record has arrived but before it has read the others' records. If that
// member was the last to arrive, it had to pack the records, so the exchange fails and names it.
// Otherwise the exchange succeeds, the death is reported to members that ask, and the next exchange
// fails. Either way, no member waits for a deadline.
#include "runtime/job/exchange.hpp"

#include <algorithm>
#include <future>

#include "runtime/base/error.hpp"
#include "runtime/job/store/client.hpp"
#include "runtime/job/store/server.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace std::chrono_literals;
using std::chrono::milliseconds;

namespace {

const Secret kSecret("a secret of this test", "the test");

// A member's view of the store; the member dies before it reads the records.
class DiesBeforeItReads : public Store {
 public:
  explicit DiesBeforeItReads(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  void set(const std::string& key, const std::string& value) override { store_->set(key, value); }
  std::string get(const std::string& key, milliseconds timeout) override {
    static_cast<void>(store_->get(key, timeout));
    store_.reset();
    throw CommError("died");
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    return store_->add(key, amount);
  }
  std::vector<std::string> wait(const std::vector<std::string>& keys, milliseconds t) override {
    return store_->wait(keys, t);
  }
  std::string compare_and_swap(const std::string& key, const std::string& expected,
                               const std::string& desired) override {
    return store_->compare_and_swap(key, expected, desired);
  }
  bool remove(const std::string& key) override { return store_->remove(key); }
  void leave_will(const std::vector<std::string>& keys, const std::string& value) override {
    store_->leave_will(keys, value);
  }
  [[nodiscard]] std::string name() const override { return "a store"; }

 private:
  std::shared_ptr<Store> store_;
};

struct Job {
  [[nodiscard]] std::shared_ptr<Store> store() const {
    return std::make_shared<StoreClient>(tcp::Address{"127.0.0.1", server.port()}, kSecret,
                                         Deadline::in(10s));
  }
  [[nodiscard]] static Membership member(int index) {
    Membership m;
    m.index = index;
    m.size = 2;
    m.timeout = 20s;
    return m;
  }
  StoreServer server{kSecret, {}};
};

constexpr const char* kArrived = "ranks/0/arrived";
constexpr const char* kLost = "rank 1 (pid";
constexpr milliseconds kSoon{10'000};  // half of the timeout

}  // namespace

TEST_CASE("a member that dies before the records are packed ends the exchange", "[bootstrap]") {
  const Job job;
  const auto began = std::chrono::steady_clock::now();
  Exchange survivor(job.store(), Job::member(0));
  Exchange victim(std::make_shared<DiesBeforeItReads>(job.store()), Job::member(1));
  auto records = std::async(std::launch::async, [&] { return survivor.all_gather("zero"); });
  REQUIRE(job.store()->wait({kArrived}, 10s).empty());
  // The victim was the last to arrive, so it had to pack the records.
  CHECK_THROWS_WITH(victim.all_gather("one"), "died");
  CHECK_THROWS_WITH(records.get(), ContainsSubstring(kLost));
  CHECK(std::chrono::steady_clock::now() - began < kSoon);
}

TEST_CASE("a member that has all records, and stands still, is named", "[bootstrap]") {
  const Job job;
  Membership first = Job::member(0);
  first.timeout = 1s;
  Exchange survivor(job.store(), first), collector(job.store(), Job::member(1));
  auto records = std::async(std::launch::async, [&] { return survivor.all_gather("zero"); });
  const auto store = job.store();
  REQUIRE(store->wait({kArrived}, 10s).empty());
  store->set("ranks/0/from/1", "one");
  // How far the collector gets. 1: its record is in the store. 2: the record is counted. 3: it has
  // begun to collect.
  const int steps = GENERATE(1, 2, 3);
  if (steps >= 2) store->add(kArrived, 1);
  if (steps >= 3) {
    store->set("ranks/0/collector", "1");
    store->remove("ranks/0/from/0");
    CHECK_THROWS_WITH(records.get(),
                      ContainsSubstring(std::string("ms for the others: ") + kLost) &&
                          ContainsSubstring("has not sent"));
  } else {
    CHECK_THROWS_WITH(records.get(), ContainsSubstring("ms for the others: all 2 have sent their "
                                                       "records, but one of them hangs"));
  }
}

TEST_CASE("a member that dies when the records are packed is known to be lost", "[bootstrap]") {
  const Job job;
  const auto began = std::chrono::steady_clock::now();
  Exchange survivor(job.store(), Job::member(0));
  Exchange victim(std::make_shared<DiesBeforeItReads>(job.store()), Job::member(1));
  CHECK_FALSE(survivor.lost_member().has_value());
  auto end = std::async(std::launch::async, [&] { return victim.all_gather("one"); });
  REQUIRE(job.store()->wait({kArrived}, 10s).empty());
  CHECK(survivor.all_gather("zero") == std::vector<std::string>{"zero", "one"});
  CHECK_THROWS_WITH(end.get(), "died");
  survivor.await_readers();
  const auto lost = survivor.lost_member();
  REQUIRE(lost.has_value());
  CHECK(lost->index == 1);
  CHECK_THAT(lost->text, ContainsSubstring(kLost));
  CHECK_THROWS_WITH(survivor.all_gather("zero"), ContainsSubstring(kLost));
  CHECK(std::chrono::steady_clock::now() - began < kSoon);
}

TEST_CASE("a member of a quorum that gives the step up ends the others' meeting at once",
          "[bootstrap]") {
  const int round = GENERATE(0, 1, 3);
  StoreServer server(kSecret, {.quorums = store::CoordinatorOptions{2, 1, 10s}});
  const auto meet = [&](int index) {
    auto client = std::make_shared<StoreClient>(tcp::Address{"127.0.0.1", server.port()}, kSecret,
                                                Deadline::in(10s));
    (void)client->ask_quorum({index, "me", {}, false}, 10s);
    Exchange exchange(client, {.prefix = std::string(store::kQuorumKeys) + "1",
                               .index = index,
                               .size = 2,
                               .timeout = 10s});
    for (int r = 0; r < round; ++r) (void)exchange.all_gather("");
    if (index == 1) return (void)client->ask_quorum({index, "me", store::Vote::no, false}, 10s);
    const Deadline soon = Deadline::in(5s);
    CHECK_THROWS_WITH(exchange.all_gather(""),
                      ContainsSubstring("rank 1 (me) has abandoned the step"));
    CHECK_FALSE(soon.passed());
    (void)client->ask_quorum({index, "me", store::Vote::no, false}, 10s);
  };
  auto other = std::async(std::launch::async, meet, 1);
  meet(0);
  other.get();
}

TEST_CASE("rounds that all have read leave the store: only the last one stays", "[bootstrap]") {
  const Job job;
  const auto rounds = [&](Exchange& exchange, int n) {
    for (int i = 0; i < n; ++i)
      if (exchange.all_gather("record").size() != 2) throw Error("not all records");
  };
  constexpr int kRounds = 20;
  auto other = std::async(std::launch::async, [&] {
    Exchange exchange(job.store(), Job::member(1));
    rounds(exchange, kRounds);
  });
  Exchange exchange(job.store(), Job::member(0));
  rounds(exchange, kRounds);
  other.get();
  exchange.await_readers();
  const auto view = job.store();
  std::vector<std::string> all, left;
  for (int round = 0; round < kRounds; ++round)
    for (const std::string name :
         {"arrived", "collector", "result", "read", "over", "block/0", "from/0", "from/1"})
      all.push_back("ranks/" + std::to_string(round) + "/" + name);
  const std::vector<std::string> missing = view->wait(all, 0ms);
  for (const std::string& key : all)
    if (std::ranges::find(missing, key) == missing.end()) left.push_back(key);
  for (const std::string& key : left) {
    INFO(key);
    CHECK(key.rfind("ranks/19/", 0) == 0);  // the last round is kept for await_readers()
  }
  CHECK(left.size() == 6);
}
