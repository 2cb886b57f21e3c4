// litmus: a few lines for two or three threads, run in every way that their memory orders allow.
//
//     lesson19_litmus mp relaxed          all outcomes, and in how many executions
//     lesson19_litmus mp relaxed told     an execution of each outcome, step by step
//     lesson19_litmus mp relaxed told --json
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "labs/kit/explorer/atomic.hpp"

using namespace explorer;

namespace {

// The orders of the stores and loads with which the threads communicate, of a fence between the
// accesses of each thread, and of a fence after them. relaxed: no fence.
struct Orders {
  const char* name;
  Order store, load, between = relaxed, behind = relaxed;
  void middle() const {
    if (between != relaxed) fence(between);
  }
  void end() const {
    if (behind != relaxed) fence(behind);
  }
};
constexpr Orders kOrders[] = {{"relaxed", relaxed, relaxed},
                              {"release", release, relaxed},
                              {"acquire", relaxed, acquire},
                              {"both", release, acquire},
                              {"seq_cst", seq_cst, seq_cst},
                              {"acq_rel-fences", relaxed, relaxed, acq_rel},
                              {"seq_cst-fences", relaxed, relaxed, seq_cst},
                              {"fences-behind", relaxed, relaxed, relaxed, seq_cst}};

std::string to_tell;  // an outcome

void saw(const std::string& text) {
  outcome(text);
  require(text != to_tell, text);
}

// Message passing.
Program mp(Orders o) {
  struct State {
    atomic<int> data{"data", 0}, flag{"flag", 0};
    int flag_seen = 0, data_seen = 0;
  };
  const auto s = std::make_shared<State>();
  return {{{"writer",
            [=] {
              s->data.store(1, relaxed);
              o.middle();
              s->flag.store(1, o.store);
              o.end();
            }},
           {"reader",
            [=] {
              s->flag_seen = s->flag.load(o.load);
              o.middle();
              s->data_seen = s->data.load(relaxed);
              o.end();
            }}},
          [=] {
            saw("flag " + std::to_string(s->flag_seen) + ", data " + std::to_string(s->data_seen));
          }};
}

// The same with plain data, as in real programs: only a reader that sees the flag reads the data.
Program plain_data(Orders o) {
  struct State {
    plain<int> data{"data"};
    atomic<int> flag{"flag", 0};
  };
  const auto s = std::make_shared<State>();
  return {{{"writer",
            [=] {
              s->data.set(1);
              o.middle();
              s->flag.store(1, o.store);
              o.end();
            }},
           {"reader", [=] {
              const bool there = s->flag.load(o.load) == 1;
              o.middle();
              if (there) require(s->data.get() == 1, "the reader has old data");
            }}}};
}

// Store buffering: each thread stores to the other's bell, and then loads its own.
Program sb(Orders o) {
  struct State {
    atomic<int> bell[2]{{"bell 0", 0}, {"bell 1", 0}};
    int seen[2]{};
  };
  const auto s = std::make_shared<State>();
  const auto ring = [=](int me) {
    s->bell[1 - me].store(1, o.store);
    o.middle();
    s->seen[me] = s->bell[me].load(o.load);
    o.end();
  };
  return {{{"thread 0", [=] { ring(0); }}, {"thread 1", [=] { ring(1); }}}, [=] {
            saw("thread 0 sees " + std::to_string(s->seen[0]) + ", thread 1 sees " +
                std::to_string(s->seen[1]));
          }};
}

// The effect of store buffering on doorbell.hpp: the receiver sleeps, and the sender does not
// wake it.
Program bells(Orders o) {
  struct State {
    atomic<int> tail{"tail", 0}, sleeping{"sleeping", 0}, rings{"rings", 0};
  };
  const auto s = std::make_shared<State>();
  return {{{"sender",
            [=] {
              s->tail.store(1, o.store);
              o.middle();
              if (s->sleeping.load(o.load) == 1) s->rings.fetch_add(1);
            }},
           {"receiver", [=] {
              s->sleeping.store(1, o.store);
              o.middle();
              if (s->tail.load(o.load) == 0) wait_until([&] { return s->rings.load() > 0; });
            }}}};
}

// Load buffering: each thread loads its own letter, and then stores to the other's.
Program lb(Orders o) {
  struct State {
    atomic<int> letter[2]{{"letter 0", 0}, {"letter 1", 0}};
    int seen[2]{};
  };
  const auto s = std::make_shared<State>();
  const auto answer = [=](int me) {
    s->seen[me] = s->letter[me].load(o.load);
    o.middle();
    s->letter[1 - me].store(1, o.store);
    o.end();
  };
  return {{{"thread 0", [=] { answer(0); }}, {"thread 1", [=] { answer(1); }}}, [=] {
            saw("thread 0 sees " + std::to_string(s->seen[0]) + ", thread 1 sees " +
                std::to_string(s->seen[1]));
          }};
}

// Between writer and reader, a third thread changes the count: by an update, or by a load and a
// store.
Program third(Orders o, bool update) {
  struct State {
    atomic<int> data{"data", 0}, count{"count", 0};
    int count_seen = 0, data_seen = 0;
  };
  const auto s = std::make_shared<State>();
  return {
      {{"writer",
        [=] {
          s->data.store(1, relaxed);
          o.middle();
          s->count.store(1, o.store);
        }},
       {"third",
        [=] {
          if (update)
            s->count.fetch_add(10, relaxed);
          else
            s->count.store(10 + s->count.load(relaxed), relaxed);
        }},
       {"reader",
        [=] {
          s->count_seen = s->count.load(o.load);
          o.middle();
          s->data_seen = s->data.load(relaxed);
        }}},
      [=] {
        saw("count " + std::to_string(s->count_seen) + ", data " + std::to_string(s->data_seen));
      }};
}

struct Test {
  const char *name, *what;
  Program (*make)(Orders);
};
const Test kTests[] = {
    {"mp", "data = 1; flag = 1  beside  read flag; read data", mp},
    {"plain", "data = 1; flag = 1  beside  if (flag) read data", plain_data},
    {"sb", "bell 1 = 1; read bell 0  beside  bell 0 = 1; read bell 1", sb},
    {"bells", "tail = 1; if (sleeping) ring  beside  sleeping = 1; if (!tail) sleep", bells},
    {"lb", "read letter 0; letter 1 = 1  beside  read letter 1; letter 0 = 1", lb},
    {"update", "data = 1; count = 1  beside  count += 10  beside  read count; read data",
     [](Orders o) { return third(o, true); }},
    {"store", "data = 1; count = 1  beside  count = count + 10  beside  read count; read data",
     [](Orders o) { return third(o, false); }},
};

int usage() {
  std::fprintf(stderr, "lesson19_litmus TEST ORDERS [told [--json]]\nTEST:\n");
  for (const Test& t : kTests) std::fprintf(stderr, "  %-8s %s\n", t.name, t.what);
  std::fprintf(stderr, "ORDERS:");
  for (const Orders& o : kOrders) std::fprintf(stderr, " %s", o.name);
  std::fprintf(stderr, "\n");
  return 6;
}

int run(const Test& test, const Orders& orders, bool told) {
  const auto make = [&] { return test.make(orders); };
  const Result all = explore(make);
  std::printf("%s\n", test.what);
  if (!all.outcomes.empty()) std::printf("executions  outcome\n");
  for (const auto& [text, count] : all.outcomes) {
    std::printf("%10llu  %s\n", static_cast<unsigned long long>(count), text.c_str());
    if (!told) continue;
    to_tell = text;
    std::printf("%s", explore(make).execution.c_str());
    to_tell.clear();
  }
  if (!all.failure.empty()) {
    std::printf("WRONG: %s\n%s", all.failure.c_str(), all.execution.c_str());
    return 1;
  }
  std::printf("%llu in all\n", static_cast<unsigned long long>(all.executions));
  return 0;
}

// The same for the book's figure: an execution of each outcome, as a list of steps.
int as_json(const Test& test, const Orders& orders) {
  const auto make = [&] { return test.make(orders); };
  const Result all = explore(make);
  auto outcomes = nlohmann::json::array();
  for (const auto& [text, count] : all.outcomes) {
    to_tell = text;
    outcomes.push_back({{"text", text}, {"count", count}, {"told", explore(make).execution}});
    to_tell.clear();
  }
  std::printf("%s\n", nlohmann::json{{"what", test.what},
                                     {"outcomes", outcomes},
                                     {"executions", all.executions},
                                     {"failure", all.failure},
                                     {"told", all.execution}}
                          .dump()
                          .c_str());
  return all.failure.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const bool told = argc >= 4 && std::strcmp(argv[3], "told") == 0;
  const bool json = argc == 5 && std::strcmp(argv[4], "--json") == 0;
  if (argc > 5 || (argc == 5 && !json) || (argc != 3 && !told)) return usage();
  for (const Test& test : kTests)
    for (const Orders& orders : kOrders)
      if (test.name == std::string(argv[1]) && orders.name == std::string(argv[2]))
        return json ? as_json(test, orders) : run(test, orders, told);
  return usage();
}
