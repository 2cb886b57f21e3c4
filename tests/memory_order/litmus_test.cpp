// The classical litmus tests, with exactly the outcomes that each may have.
//
// An outcome is the values that each thread has read, thread by thread, then the last values of x
// and y. "|10|11" is a failure of message passing: the second thread has seen the flag y, but not
// the data. The names are those used in the literature (Alglave, Maranget, Tautschnig: Herding
// cats, TOPLAS 2014).
#include <set>
#include <stdexcept>

#include "labs/kit/explorer/atomic.hpp"
#include "tests/memory_order/oracle.hpp"
#include "tests/support/catch.hpp"

using namespace explorer;
using oracle::Litmus;
using oracle::Operation;
using oracle::What;

namespace {

constexpr int x = 0, y = 1;
Operation R(int place, Order order) { return {What::load, place, order, 0}; }
Operation W(int place, int value, Order order) { return {What::store, place, order, value}; }
Operation Add(int place, int value, Order order) { return {What::add, place, order, value}; }
Operation F(Order order) { return {What::fence, x, order, 0}; }

struct Known {
  const char* name;
  Litmus litmus;
  std::set<std::string> outcomes;
};

// Returns all outcomes of a form in which each ? is a read of 0 or 1.
std::set<std::string> all_of(const std::string& form) {
  std::set<std::string> texts = {""};
  for (const char c : form) {
    std::set<std::string> longer;
    for (const std::string& text : texts)
      for (const char d : c == '?' ? std::string("01") : std::string(1, c)) longer.insert(text + d);
    texts = longer;
  }
  return texts;
}
std::set<std::string> all_but(const std::string& form, const std::string& one) {
  auto texts = all_of(form);
  texts.erase(one);
  return texts;
}

const Known kTable[] = {
    // Message passing: x is the data, y the flag.
    {"MP, relaxed",
     {{W(x, 1, relaxed), W(y, 1, relaxed)}, {R(y, relaxed), R(x, relaxed)}},
     all_of("|??|11")},
    {"MP, release and acquire",
     {{W(x, 1, relaxed), W(y, 1, release)}, {R(y, acquire), R(x, relaxed)}},
     all_but("|??|11", "|10|11")},
    {"MP, release and relaxed",
     {{W(x, 1, relaxed), W(y, 1, release)}, {R(y, relaxed), R(x, relaxed)}},
     all_of("|??|11")},
    {"MP, relaxed and acquire",
     {{W(x, 1, relaxed), W(y, 1, relaxed)}, {R(y, acquire), R(x, relaxed)}},
     all_of("|??|11")},
    {"MP, fences",
     {{W(x, 1, relaxed), F(release), W(y, 1, relaxed)}, {R(y, relaxed), F(acquire), R(x, relaxed)}},
     all_but("|??|11", "|10|11")},
    {"MP, the fence behind the flag",
     {{W(x, 1, relaxed), W(y, 1, relaxed), F(release)}, {R(y, relaxed), F(acquire), R(x, relaxed)}},
     all_of("|??|11")},
    // Store buffering, as in two doorbells.
    {"SB, relaxed",
     {{W(x, 1, relaxed), R(y, relaxed)}, {W(y, 1, relaxed), R(x, relaxed)}},
     all_of("?|?|11")},
    {"SB, release and acquire",
     {{W(x, 1, release), R(y, acquire)}, {W(y, 1, release), R(x, acquire)}},
     all_of("?|?|11")},
    {"SB, seq_cst",
     {{W(x, 1, seq_cst), R(y, seq_cst)}, {W(y, 1, seq_cst), R(x, seq_cst)}},
     all_but("?|?|11", "0|0|11")},
    {"SB, seq_cst but for one load",
     {{W(x, 1, seq_cst), R(y, acquire)}, {W(y, 1, seq_cst), R(x, seq_cst)}},
     all_of("?|?|11")},
    {"SB, seq_cst fences",
     {{W(x, 1, relaxed), F(seq_cst), R(y, relaxed)}, {W(y, 1, relaxed), F(seq_cst), R(x, relaxed)}},
     all_but("?|?|11", "0|0|11")},
    {"SB, acq_rel fences",
     {{W(x, 1, relaxed), F(acq_rel), R(y, relaxed)}, {W(y, 1, relaxed), F(acq_rel), R(x, relaxed)}},
     all_of("?|?|11")},
    // Load buffering. C++20 allows 1|1 for relaxed; RC11, and therefore the explorer, does not.
    {"LB, relaxed",
     {{R(x, relaxed), W(y, 1, relaxed)}, {R(y, relaxed), W(x, 1, relaxed)}},
     all_but("?|?|11", "1|1|11")},
    // Independent reads of independent writes: do two readers agree on which store was first?
    {"IRIW, release and acquire",
     {{W(x, 1, release)},
      {W(y, 1, release)},
      {R(x, acquire), R(y, acquire)},
      {R(y, acquire), R(x, acquire)}},
     all_of("||??|??|11")},
    {"IRIW, seq_cst",
     {{W(x, 1, seq_cst)},
      {W(y, 1, seq_cst)},
      {R(x, seq_cst), R(y, seq_cst)},
      {R(y, seq_cst), R(x, seq_cst)}},
     all_but("||??|??|11", "||10|10|11")},
    {"IRIW, seq_cst fences",
     {{W(x, 1, relaxed)},
      {W(y, 1, relaxed)},
      {R(x, relaxed), F(seq_cst), R(y, relaxed)},
      {R(y, relaxed), F(seq_cst), R(x, relaxed)}},
     all_but("||??|??|11", "||10|10|11")},
    // Two threads write the same two places in opposite orders.
    {"2+2W, release",
     {{W(x, 1, release), W(y, 2, release)}, {W(y, 1, release), W(x, 2, release)}},
     {"||11", "||12", "||21", "||22"}},
    {"2+2W, seq_cst",
     {{W(x, 1, seq_cst), W(y, 2, seq_cst)}, {W(y, 1, seq_cst), W(x, 2, seq_cst)}},
     {"||12", "||21", "||22"}},
    // Write-to-read causality: a thread passes on a value that it has read.
    {"WRC, release and acquire",
     {{W(x, 1, relaxed)}, {R(x, relaxed), W(y, 1, release)}, {R(y, acquire), R(x, relaxed)}},
     all_but("|?|??|11", "|1|10|11")},
    // An update continues the release sequence of the store before it, but a store does not
    // (C++20).
    {"release sequence, through an update",
     {{W(x, 1, relaxed), W(y, 4, release)}, {Add(y, 1, relaxed)}, {R(y, acquire), R(x, relaxed)}},
     {"|0|00|14", "|0|01|14", "|0|10|14", "|0|11|14", "|0|41|14", "|4|00|15", "|4|01|15",
      "|4|41|15", "|4|51|15"}},
    {"release sequence, broken by a store",
     {{W(x, 1, relaxed), W(y, 1, release), W(y, 2, relaxed)}, {R(y, acquire), R(x, relaxed)}},
     {"|00|12", "|01|12", "|11|12", "|20|12", "|21|12"}},
    // Coherence of one location.
    {"CoRR", {{W(x, 1, relaxed)}, {R(x, relaxed), R(x, relaxed)}}, {"|00|10", "|01|10", "|11|10"}},
    {"CoWW", {{W(x, 1, relaxed), W(x, 2, relaxed)}}, {"|20"}},
    {"CoWR", {{W(x, 1, relaxed), R(x, relaxed)}, {W(x, 2, relaxed)}}, {"1||10", "1||20", "2||20"}},
    {"CoRW", {{R(x, relaxed), W(x, 1, relaxed)}, {W(x, 2, relaxed)}}, {"0||10", "0||20", "2||10"}},
    {"updates are atomic", {{Add(x, 1, relaxed)}, {Add(x, 1, relaxed)}}, {"0|1|20", "1|0|20"}},
};

}  // namespace

TEST_CASE("litmus tests have their known outcomes", "[litmus]") {
  for (const Known& known : kTable) {
    const Result found = oracle::explored(known.litmus);
    std::set<std::string> outcomes;
    for (const auto& [outcome, count] : found.outcomes) outcomes.insert(outcome);
    CAPTURE(known.name, found.failure);
    CHECK(found.complete);
    CHECK(outcomes == known.outcomes);
    CHECK(found.outcomes == oracle::outcomes(known.litmus));
  }
}

namespace {

// Mutual exclusion by loads and stores alone (Peterson: Myths about the mutual exclusion problem,
// 1981). `say`: order of the stores; `look`: order of the loads.
Program peterson(Order say, Order look) {
  struct Lock {
    atomic<int> wants_0{"wants 0", 0}, wants_1{"wants 1", 0}, turn{"turn", 0};
    plain<int> count{"count"};
  };
  const auto lock = std::make_shared<Lock>();
  const auto enter = [=](int me) {
    auto& mine = me == 0 ? lock->wants_0 : lock->wants_1;
    auto& theirs = me == 0 ? lock->wants_1 : lock->wants_0;
    mine.store(1, say);
    lock->turn.store(1 - me, say);
    wait_until([&] { return theirs.load(look) == 0 || lock->turn.load(look) == me; });
    lock->count.set(lock->count.get() + 1);
    mine.store(0, release);
  };
  return {{{"thread 0", [=] { enter(0); }}, {"thread 1", [=] { enter(1); }}},
          [=] { require(lock->count.get() == 2, "an increment is lost"); }};
}

// Dekker's first half: a thread that sees the other's flag does not enter.
Program dekker(Order say, Order look, bool fences) {
  struct State {
    atomic<int> x{"x", 0}, y{"y", 0};
    plain<int> room{"room"};
  };
  const auto s = std::make_shared<State>();
  const auto enter = [=](atomic<int>& mine, atomic<int>& theirs, int me) {
    mine.store(1, say);
    if (fences) fence(seq_cst);
    if (theirs.load(look) == 0) s->room.set(me);
  };
  return {
      {{"thread 0", [=] { enter(s->x, s->y, 0); }}, {"thread 1", [=] { enter(s->y, s->x, 1); }}}};
}

}  // namespace

TEST_CASE("mutual exclusion needs seq_cst", "[litmus]") {
  const Result right = explore([] { return peterson(seq_cst, seq_cst); });
  INFO(right.failure << "\n" << right.execution);
  CHECK(right.complete);
  CHECK(right.executions > 1);
  const Result wrong = explore([] { return peterson(release, acquire); });
  CHECK_THAT(wrong.failure, ContainsSubstring("data race on count"));
  CHECK(explore([] { return dekker(seq_cst, seq_cst, false); }).complete);
  CHECK(explore([] { return dekker(relaxed, relaxed, true); }).complete);
  for (const auto& [say, look] : {std::pair{release, acquire}, std::pair{seq_cst, acquire},
                                  std::pair{release, seq_cst}, std::pair{relaxed, relaxed}}) {
    const Result both = explore([say = say, look = look] { return dekker(say, look, false); });
    CHECK_THAT(both.failure, ContainsSubstring("data race on room"));
  }
}

TEST_CASE("an execution is told step by step", "[litmus]") {
  const Result found = explore([] {
    struct State {
      plain<int> data{"data"};
      atomic<int> flag{"flag", 0};
    };
    const auto s = std::make_shared<State>();
    return Program{{{"writer",
                     [s] {
                       s->data.set(7);
                       s->flag.store(1, relaxed);
                     }},
                    {"reader", [s] {
                       while (s->flag.load(acquire) == 0) {
                       }
                       (void)s->data.get();
                     }}}};
  });
  CHECK(found.failure == "data race on data: nothing orders steps 1 and 4");
  CHECK(found.execution ==
        "  1  writer  data = 7\n"
        "  2  writer  flag.store(1, relaxed)\n"
        "  3  reader  flag.load(acquire) -> 1                        step 2's\n"
        "  4  reader  data is read: 7\n");
}

TEST_CASE("who waits for what never comes is found, and who waits too early is not", "[litmus]") {
  const auto waiter = [](int stores, int awaited) {
    return explore([=] {
      const auto flag = std::make_shared<atomic<int>>("flag", 0);
      return Program{{{"waiter", [=] { wait_until([&] { return flag->load() == awaited; }); }},
                      {"writer", [=] {
                         for (int i = 1; i <= stores; ++i) flag->store(i);
                       }}}};
    });
  };
  CHECK(waiter(3, 3).complete);
  CHECK(waiter(3, 3).executions == 1);
  CHECK(waiter(3, 4).failure == "waiter waits forever");
  CHECK(waiter(3, 2).failure == "waiter waits forever");
}

TEST_CASE("what goes wrong in a thread is its failure", "[litmus]") {
  const auto alone = [](const std::function<void(atomic<int>&)>& body) {
    return explore(
        [&] {
          const auto flag = std::make_shared<atomic<int>>("flag", 0);
          return Program{{{"thread", [=] { body(*flag); }}}};
        },
        {.most_events = 50});
  };
  CHECK(alone([](atomic<int>&) { throw std::runtime_error("no"); }).failure ==
        "thread ends with an exception: no");
  CHECK(alone([](atomic<int>& f) { require(f.load() == 1, "it is 0"); }).failure == "it is 0");
  CHECK_THAT(alone([](atomic<int>& f) {
               for (int i = 0;; ++i) f.store(i);
             }).failure,
             ContainsSubstring("more than 50 atomic operations"));
  CHECK(alone([](atomic<int>& f) {
          int expected = 1;
          require(!f.compare_exchange_strong(expected, 2) && expected == 0, "it was 0");
          require(f.compare_exchange_strong(expected, 2) && f.exchange(3) == 2, "it is 2");
        }).complete);
}
