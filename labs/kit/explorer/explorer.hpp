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
//     result.failure     "data race: ..."        result.execution     who did what, who read what
//
// An *execution* is what every thread did, which store every load read from, and in which order the
// stores to each location follow each other. Time plays no part: a load may read an old store while
// a newer one has been made, as on a processor whose stores wait in a buffer. Allowed is what RC11
// allows (Lahav, Vafeiadis, Kang, Hur, Dreyer: Repairing sequential consistency in C/C++11, PLDI
// 2017), which is C++20 with one exception: no load reads a store that depends on it in time ("load
// buffering" is never seen here; POWER and ARM allow it for relaxed atomics). Release sequences are
// C++20's.
//
// The search is that of TruSt (Kokologiannakis, Marmanis, Gladstein, Vafeiadis: Truly stateless,
// optimal dynamic partial order reduction, POPL 2022): every execution exactly once, with no list
// of those seen. search.cpp has it, consistency.cpp the model.
//
// Found are: data races on plain memory, a require() that is false, and threads that wait forever,
// each with its execution. A thread is not unwound when an execution is given up: what it owns on
// its stack is not freed.
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
  std::function<void()> after = {};  // when all have ended: sees the last value of everything
};
constexpr std::size_t kMostThreads = 6;

enum class Access : std::uint8_t { load, store, update, fence };

// An order made weaker than it is in the program: of all accesses of this kind to locations of this
// name, or name[...]. (Fences have the name "fence".)
struct Weakening {
  std::string location;
  Access access = Access::load;
  Order order = relaxed;
  bool torn = false;  // instead: 64 bits are loaded or stored as two halves
};

struct Options {
  std::vector<Weakening> weakened = {};
  std::uint64_t most_executions = 10'000'000;
  std::size_t most_events = 1000;  // atomic operations of one thread
};

struct Result {
  std::uint64_t executions = 0;  // in which all threads came to their end
  std::uint64_t waiting = 0;     // others: a thread waits for what it will see in one of the above
  std::uint64_t runs = 0;        // of the program, complete or not
  std::size_t events = 0;        // atomic operations of the longest execution
  double seconds = 0;
  bool complete = false;                          // nothing was left out, and nothing failed
  std::string failure;                            // empty, or what went wrong first
  std::string execution;                          // if so: what led to it, a line for each step
  std::map<std::string, std::uint64_t> outcomes;  // what outcome() said, and in how many executions
  std::uint64_t weakened = 0;                     // accesses that a Weakening has changed
};

// make() builds the program anew for each execution, always the same.
Result explore(const std::function<Program()>& make, const Options& options = {});

// For threads and for `after`:
void require(bool holds,
             const std::string& what);  // if not, the exploration ends with this failure
void outcome(const std::string& text);

// ---- for front ends: atomic.hpp, and code whose atomics a compiler has instrumented ----

using Value = std::uint64_t;
using Key = std::uint64_t;  // of a location; the same in each execution
using Site = const void*;   // of the call

bool exploring();  // inside a thread of a program, or in its `after`
Key new_key();     // the next free one of this execution
// Before its first use. Names are of string constants or live as long as the exploration.
void declare(Key key, const std::string& name, Value initial);
bool declared(Key key);

// A loop that loads one location again and again, from one place, and does nothing else, is a wait.
Value load(Key key, Order order, Site site = nullptr, int bytes = 8);
void store(Key key, Value value, Order order, int bytes = 8);
// Returns the value before. `next` gives the new one, or says no (a compare_exchange that fails).
using Next = std::function<bool(Value before, Value& after)>;
Value update(Key key, const char* name, const Next& next, Order order, Order if_not = relaxed);
void fence(Order order);
// Plain memory: `bytes` keys from this one, called name[index], or name if that is -1. shown: what
// is there, if that is known.
void touch(Key first, std::size_t bytes, bool write, const char* name, std::int64_t index,
           const Value* shown);

// The condition of a wait; it has no effect but its loads.
void begin_wait();
void end_wait(bool ready);
template <class Ready>
void wait_until(Ready ready) {
  begin_wait();
  end_wait(ready());
}
// Called when another thread of the program goes on, with its number.
void on_switch(std::function<void(std::size_t)> callback);

}  // namespace explorer
