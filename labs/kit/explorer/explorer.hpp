// The explorer: runs a small concurrent program in every way that the C++ memory model allows.
//
//     auto result = explorer::explore([] {
//       struct State {
//         explorer::plain<int> data{"data"};
//         explorer::atomic<int> flag{"flag", 0};
//       };
//       auto s = std::make_shared<State>();
//       return explorer::Program{{{"writer", [s] { s->data.set(1); s->flag.store(1, release); }},
//                                 {"reader", [s] { if (s->flag.load(relaxed)) s->data.get(); }}}};
//     });
//     result.failure     "data race: ..."        result.execution     each step, with its values
//
// An *execution* consists of the events of every thread, the store that every load read from, and
// the order of the stores to each location. A load may read an old store although a newer one has
// been made, as on a processor with store buffers. The model is RC11 (Lahav, Vafeiadis, Kang, Hur,
// Dreyer: Repairing sequential consistency in C/C++11, PLDI 2017) with C++20's release sequences.
// It differs from C++20 in one way: no load reads a store that depends on the load or follows it in
// program order ("load buffering", which POWER and ARM allow for relaxed atomics, is never seen
// here).
//
// The search is TruSt (Kokologiannakis, Marmanis, Gladstein, Vafeiadis: Truly stateless, optimal
// dynamic partial order reduction, POPL 2022): it visits every execution exactly once, without
// keeping a list of visited executions. search.cpp implements it, consistency.cpp the model.
//
// It finds data races on plain memory, failed require() calls, and threads that wait forever, and
// reports the execution that leads to each. An abandoned execution does not unwind its threads:
// objects owned by their stacks leak.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace explorer {

enum class Order : std::uint8_t { relaxed, acquire, release, acq_rel, seq_cst };
inline constexpr Order relaxed = Order::relaxed, acquire = Order::acquire, release = Order::release,
                       acq_rel = Order::acq_rel, seq_cst = Order::seq_cst;
constexpr bool acquires(Order o) { return o == acquire || o == acq_rel || o == seq_cst; }
constexpr bool releases(Order o) { return o == release || o == acq_rel || o == seq_cst; }

struct Thread {
  std::string name;
  std::function<void()> body;
};
struct Program {
  std::vector<Thread> threads;       // at most kMostThreads
  std::function<void()> after = {};  // called after all threads; sees the last values
};
constexpr std::size_t kMostThreads = 6;

enum class Access : std::uint8_t { load, store, update, fence };

// Weakens the memory order of all accesses of this kind to locations named `location` or
// location[...]. (Fences have the name "fence".)
struct Weakening {
  std::string location;
  Access access = Access::load;
  Order order = relaxed;
  bool torn = false;  // true: splits 64-bit loads and stores into two halves instead
};

struct Options {
  std::vector<Weakening> weakened = {};
  std::uint64_t most_executions = 10'000'000;
  std::size_t most_events = 1000;  // limit for one thread; an update counts as two
};

struct Result {
  std::uint64_t executions = 0;  // number in which all threads ended
  std::uint64_t waiting = 0;     // number stopped in a wait that read an old value
  std::uint64_t runs = 0;        // number of runs of the program, complete or not
  std::size_t events = 0;        // length of the longest execution; an update counts as two
  double seconds = 0;
  bool complete = false;                          // nothing was left out, and nothing failed
  std::string failure;                            // the first failure; empty if none
  std::string execution;                          // the steps that led to it, one per line
  std::map<std::string, std::uint64_t> outcomes;  // number of executions per outcome()
  std::uint64_t weakened = 0;                     // number of accesses changed by a Weakening
};

// make() builds the program anew for each execution and must always build the same program.
Result explore(const std::function<Program()>& make, const Options& options = {});

// Called by threads and by `after`. If `holds` is false, require() ends the exploration with this
// failure.
void require(bool holds, const std::string& what);
void outcome(const std::string& text);

// ---- for front ends: atomic.hpp, and code whose atomics a compiler has instrumented ----

using Value = std::uint64_t;
using Key = std::uint64_t;  // identifies a location; the same in each execution
using Site = const void*;   // address of the call

bool exploring();  // true in a thread of a program, and in its `after`
Key new_key();     // the next unused key of this execution
// Must precede the first use of the key. The `name` of update() and touch() must outlive the
// exploration.
void declare(Key key, const std::string& name, Value initial);
bool declared(Key key);

// A loop that repeats one load from the same call site, and does nothing else, is a wait.
Value load(Key key, Order order, Site site = nullptr, int bytes = 8);
void store(Key key, Value value, Order order, int bytes = 8);
// Returns the old value. `next` computes the new value, or returns false (a failing
// compare_exchange).
using Next = std::function<bool(Value before, Value& after)>;
Value update(Key key, const char* name, const Next& next, Order order, Order if_not = relaxed);
void fence(Order order);
// Records an access to plain memory: `bytes` keys starting at `first`, named name[index], or name
// if index is -1. shown: the value there; null if it is not known.
void touch(Key first, std::size_t bytes, bool write, const char* name, std::int64_t index,
           const Value* shown);

// These enclose the condition of a wait. The condition must have no effects other than loads.
void begin_wait();
void end_wait(bool ready);
template <class Ready>
void wait_until(Ready ready) {
  begin_wait();
  end_wait(ready());
}
// Calls callback(number) each time a thread of the program starts or continues, with its number.
void on_switch(std::function<void(std::size_t)> callback);

}  // namespace explorer
