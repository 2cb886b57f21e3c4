// Runs the student's hand-offs in all executions of small programs, also with each requested order
// weakened.
#include LAB19_HAND_OFFS

#include "labs/kit/driver.hpp"

#include <array>
#include <atomic>
#include <deque>
#include <set>
#include <thread>
#include <tuple>

#include "labs/kit/explorer/explorer.hpp"

namespace {

using explorer::Access;
using explorer::Order;
using explorer::Program;
using explorer::require;
using lab19::Count;
using lab19::Number;

// A requested order: all accesses of this kind to this location that request this order.
struct Use {
  std::string name;
  Access access;
  Order order;
  auto operator<=>(const Use&) const = default;
};
std::set<Use> uses;
const Use* weakened = nullptr;
Order weaker = Order::relaxed;

Order asked(const char* name, Access access, Order order) {
  if ((access == Access::load && order != explorer::acquire && explorer::releases(order) &&
       order != explorer::seq_cst) ||
      (access == Access::store && explorer::acquires(order) && order != explorer::seq_cst))
    require(false,
            std::string(name) + (access == Access::load ? ": a load cannot have release order"
                                                        : ": a store cannot have acquire order"));
  const auto use = uses.insert({name, access, order}).first;
  return weakened != nullptr && *use == *weakened ? weaker : order;
}

template <class T>
explorer::Value as_value(T x) {
  return static_cast<explorer::Value>(x);
}

// The explorer's memory, which also records the orders.
struct Watched {
  static constexpr Order relaxed = explorer::relaxed, acquire = explorer::acquire,
                         release = explorer::release, acq_rel = explorer::acq_rel,
                         seq_cst = explorer::seq_cst;

  template <class T>
  class atomic {
   public:
    atomic(const char* name, T initial) : name_(name), key_(explorer::new_key()) {
      explorer::declare(key_, name, as_value(initial));
    }
    atomic(const atomic&) = delete;
    T load(Order order) const { return T(explorer::load(key_, asked(name_, Access::load, order))); }
    void store(T value, Order order) {
      explorer::store(key_, as_value(value), asked(name_, Access::store, order));
    }
    T exchange(T value, Order order) {
      return update("exchange", order, [=](T) { return value; });
    }
    T fetch_add(T value, Order order) {
      return update("fetch_add", order, [=](T old) { return T(old + value); });
    }

   private:
    template <class F>
    T update(const char* what, Order order, F f) {
      return T(explorer::update(
          key_, what,
          [&](explorer::Value old, explorer::Value& next) {
            next = as_value(f(T(old)));
            return true;
          },
          asked(name_, Access::update, order)));
    }
    const char* name_;
    explorer::Key key_;
  };

  template <class T>
  class plain {
   public:
    explicit plain(const char* name) : name_(name), key_(explorer::new_key()) {}
    plain(const plain&) = delete;
    T get() const {
      const explorer::Value shown = as_value(value_);
      explorer::touch(key_, 1, false, name_, -1, &shown);
      return value_;
    }
    void set(T value) {
      value_ = value;
      const explorer::Value shown = as_value(value_);
      explorer::touch(key_, 1, true, name_, -1, &shown);
    }

   private:
    const char* name_;
    explorer::Key key_;
    T value_ = 0;
  };

  static void fence(Order order) { explorer::fence(asked("fence", Access::fence, order)); }
  template <class Condition>
  static void wait_until(Condition condition) {
    if (!may_wait) explorer::require(false, "waits, but must never wait");
    explorer::wait_until(condition);
  }
  static inline bool may_wait = true;
};

struct Real {
  static constexpr std::memory_order relaxed = std::memory_order_relaxed,
                                     acquire = std::memory_order_acquire,
                                     release = std::memory_order_release,
                                     acq_rel = std::memory_order_acq_rel,
                                     seq_cst = std::memory_order_seq_cst;
  template <class T>
  struct atomic : std::atomic<T> {
    atomic(const char*, T initial) : std::atomic<T>(initial) {}
  };
  template <class T>
  class plain {
   public:
    explicit plain(const char*) {}
    plain(const plain&) = delete;
    T get() const { return value_; }
    void set(T value) { value_ = value; }

   private:
    T value_ = 0;
  };
  static void fence(std::memory_order order) { std::atomic_thread_fence(order); }
  // Set when a thread has given up, so that the other one stops waiting.
  static inline std::atomic<bool> over = false;
  struct Over {};
  template <class Condition>
  static void wait_until(Condition condition) {
    for (; !condition(); std::this_thread::yield())
      if (over) throw Over{};
  }
};

using Letter = lab19::Letter<Watched>;
using Slots = lab19::Slots<Watched>;
using Meeting = lab19::Meeting<Watched>;
using Bell = lab19::Bell<Watched>;
using Record = lab19::Record<Watched>;
using Shared = Watched::plain<Number>;  // data that a hand-off must make visible
using Numbers = std::vector<std::int64_t>;

std::string said(const std::string& what, Number got, Number want) {
  return what + " is " + std::to_string(got) + ", must be " + std::to_string(want);
}
void expect(const std::string& what, Number got, Number want) {
  require(got == want, said(what, got, want));
}

// ---- the programs ----

// n[0] = 0: a letter, and data written before it. n[0] = 1: two letters, taken in the opposite
// order. n[0] = 2: a messenger passes the letter on, and the reader must see the writer's data.
Program letters(const Numbers& n) {
  struct State {
    Letter one, two;
    Shared before{"before"};
  };
  const auto s = std::make_shared<State>();
  const Number text = n[1];
  if (n[0] == 1)
    return {{{"writer", [=] { s->one.put(text), s->two.put(text + 1); }},
             {"reader", [=] {
                expect("the second letter", s->two.take(), text + 1);
                expect("the first letter", s->one.take(), text);
              }}}};
  const auto write = [=] {
    s->before.set(3);
    s->one.put(text);
  };
  const auto read = [=](Letter& letter) {
    expect("the letter", letter.take(), text);
    expect("what was written before the letter", s->before.get(), 3);
  };
  if (n[0] == 0) return {{{"writer", write}, {"reader", [=] { read(s->one); }}}};
  return {{{"writer", write}, {"messenger", [=] { s->two.put(s->one.take()); }}, {"reader", [=] {
                                                                                    read(s->two);
                                                                                  }}}};
}

// Too large for an int, and not exact in a double.
Number message(Count m) { return (Number{1} << 61) + Number(10 * m + 7); }

// n[0] = 0: n[2] messages in one direction. n[0] = 1: each message is answered. n[0] = 2: one
// thread fills all slots and empties them, twice, without waiting.
Program slots(const Numbers& n) {
  const auto count = std::size_t(n[1]);
  const auto messages = Count(n[2]), lived = Count(n[3]);
  struct State {
    Slots there, back;
    Shared before{"before"};
    State(std::size_t slots, Count lived) : there(slots, lived), back(slots, lived) {}
  };
  const auto s = std::make_shared<State>(count, lived);
  if (n[0] == 0)
    return {{{"sender",
              [=] {
                s->before.set(3);
                for (Count m = 0; m < messages; ++m) s->there.send(message(m));
              }},
             {"receiver", [=] {
                for (Count m = 0; m < messages; ++m) {
                  expect("message " + std::to_string(m), s->there.receive(), message(m));
                  expect("what was written before", s->before.get(), 3);
                }
              }}}};
  if (n[0] == 1)
    return {{{"sender",
              [=] {
                for (Count m = 0; m < messages; ++m) {
                  s->before.set(message(m));
                  s->there.send(message(m));
                  expect("the answer to message " + std::to_string(m), s->back.receive(),
                         -message(m));
                }
              }},
             {"receiver", [=] {
                for (Count m = 0; m < messages; ++m) {
                  expect("message " + std::to_string(m), s->there.receive(), message(m));
                  expect("what was written before", s->before.get(), message(m));
                  s->back.send(-message(m));
                }
              }}}};
  return {{{"both", [=] {
              for (int again = 0; again < 2; ++again) {
                for (Count m = 0; m < count; ++m) s->there.send(message(m));
                for (Count m = 0; m < count; ++m)
                  expect("message " + std::to_string(m), s->there.receive(), message(m));
              }
            }}}};
}

// n[0] threads meet in n[1] rounds, after n[2] earlier rounds. Each thread writes its own number,
// and the last thread adds the numbers.
Program meetings(const Numbers& n) {
  const auto threads = Count(n[0]), rounds = Count(n[1]), lived = Count(n[2]);
  struct State {
    Meeting meeting;
    std::deque<Shared> own;
    Shared sum{"sum"};
    std::vector<Count> last;  // number of rounds in which each thread was last
    State(Count threads, Count lived) : meeting(threads, lived), last(threads) {
      for (const char* name : {"number 0", "number 1", "number 2", "number 3"})
        if (own.size() < threads) own.emplace_back(name);
    }
  };
  const auto s = std::make_shared<State>(threads, lived);
  Program program;
  for (Count t = 0; t < threads; ++t)
    program.threads.push_back({"thread " + std::to_string(t), [=] {
                                 for (Count round = 0; round < rounds; ++round) {
                                   s->own[t].set(Number((t + 1) * (round + 1)));
                                   const Meeting::Place place = s->meeting.arrive();
                                   expect("the round", Number(place.round), Number(lived + round));
                                   if (place.last) {
                                     ++s->last[t];
                                     Number sum = 0;
                                     for (const Shared& number : s->own) sum += number.get();
                                     s->sum.set(sum);
                                     s->meeting.open(place);
                                   } else {
                                     s->meeting.leave(place);
                                   }
                                   expect("the sum of all", s->sum.get(),
                                          Number(threads * (threads + 1) / 2 * (round + 1)));
                                 }
                               }});
  program.after = [=] {
    Count last = 0;
    for (const Count l : s->last) last += l;
    expect("how often a thread was the last one", Number(last), Number(rounds));
  };
  return program;
}

// n[0] = 0: n[1] pieces of work are posted, and the sleeper does them. n[0] = 1: one thread is both
// worker and sleeper.
Program bells(const Numbers& n) {
  const auto posts = Count(n[1]), lived = Count(n[2]);
  struct State {
    Bell bell;
    std::deque<Shared> work;
    Watched::atomic<int> wakes{"wakes", 0};
    explicit State(Count lived) : bell(lived) {
      for (const char* name : {"work 0", "work 1", "work 2"}) work.emplace_back(name);
    }
  };
  const auto s = std::make_shared<State>(lived);
  if (n[0] == 1)
    return {{{"both", [=] {
                const auto post = [&](const char* when, bool wake) {
                  expect(std::string("whether the sleeper must be woken, ") + when, s->bell.post(),
                         wake);
                };
                const auto sleep = [&](const char* when, Count seen, bool may) {
                  expect(std::string("whether it may sleep, ") + when,
                         s->bell.may_sleep(lived + seen), may);
                };
                expect("posted() at first", Number(s->bell.posted()), Number(lived));
                post("that has never slept", false);
                sleep("with one piece of work", 0, false);
                post("that was not allowed to sleep", false);
                expect("posted() after two", Number(s->bell.posted()), Number(lived + 2));
                sleep("with nothing to do", 2, true);
                post("that sleeps", true);
                s->bell.awake();
                post("that is awake", false);
                sleep("with two pieces of work", 2, false);
                sleep("with one piece of work", 3, false);
                sleep("with nothing to do again", 4, true);
                s->bell.awake();
                sleep("with nothing to do still", 4, true);
                post("that sleeps again", true);
                post("that still sleeps", true);
                s->bell.awake();
                post("that is awake at last", false);
              }}}};
  return {{{"worker",
            [=] {
              for (Count w = 0; w < posts; ++w) {
                s->work[w].set(message(w));
                if (s->bell.post()) s->wakes.fetch_add(1, Order::acq_rel);
              }
            }},
           {"sleeper", [=] {
              int woken = 0;
              for (Count w = 0; w < posts; ++w) {
                while (s->bell.posted() == lived + w) {
                  if (s->bell.may_sleep(lived + w)) {
                    explorer::wait_until([&] { return s->wakes.load(Order::acquire) > woken; });
                    woken = s->wakes.load(Order::acquire);
                  }
                  s->bell.awake();
                }
                expect("work " + std::to_string(w), s->work[w].get(), message(w));
              }
            }}}};
}

// n[0] = 0: n[1] writes, concurrent with n[2] reads by each of n[3] readers. n[0] = 1: one thread
// both writes and reads.
Program records(const Numbers& n) {
  const Number writes = n[1], reads = n[2], readers = n[3];
  const auto s = std::make_shared<Record>();
  // The numbers of a write are too large for an int, and not exact in a double.
  constexpr Number a = (Number{1} << 55) + 11, b = -(Number{1} << 54) - 1;
  const auto write = [=](Number w) { s->write(w * a, w * b); };
  const auto read = [=](Number least, Number most, bool must) {
    const auto both = s->try_read();
    if (!both) {
      require(!must, "try_read() returns nothing, although no thread writes");
      return least;
    }
    const Number w = both->second / b;
    require(both->first == w * a && both->second == w * b,
            "a is " + std::to_string(both->first) + " and b is " + std::to_string(both->second) +
                ": not from the same write");
    require(w >= least && w <= most,
            "write " + std::to_string(w) + " is read after write " + std::to_string(least));
    return w;
  };
  if (n[0] == 1)
    return {{{"both", [=] {
                for (Number w = 0; w <= writes; ++w) {
                  if (w > 0) write(w);
                  for (Number r = 0; r < reads; ++r) read(w, w, true);
                }
              }}}};
  Program program;
  program.threads.push_back({"writer", [=] {
                               for (Number w = 1; w <= writes; ++w) write(w);
                             }});
  for (Number r = 0; r < readers; ++r)
    program.threads.push_back({"reader " + std::to_string(r), [=] {
                                 Number least = 0;
                                 for (Number i = 0; i < reads; ++i)
                                   least = read(least, writes, false);
                               }});
  return program;
}

Program program_of(const std::string& task, const Numbers& numbers) {
  Watched::may_wait = task != "Record";  // its writer and readers must not wait
  if (task == "Letter") return letters(numbers);
  if (task == "Slots") return slots(numbers);
  if (task == "Meeting") return meetings(numbers);
  if (task == "Bell") return bells(numbers);
  return records(numbers);
}

explorer::Result explored(const std::string& task, const Numbers& numbers) {
  std::string missing;  // kit::NotAttempted must not escape from a fiber
  const auto result = explorer::explore([&] {
    Program program = program_of(task, numbers);
    for (explorer::Thread& thread : program.threads)
      thread.body = [body = thread.body, &missing] {
        try {
          body();
        } catch (const kit::NotAttempted& e) {
          missing = e.task;
        }
      };
    return program;
  });
  if (!missing.empty()) throw kit::NotAttempted{missing};
  return result;
}

std::vector<Order> weaker_than(const Use& use) {
  if (use.order == Order::relaxed) return {};
  if (use.access == Access::load || use.access == Access::store) {
    const Order middle = use.access == Access::load ? Order::acquire : Order::release;
    return {use.order == Order::seq_cst ? middle : Order::relaxed};
  }
  if (use.order == Order::seq_cst) return {Order::acq_rel};
  if (use.order == Order::acq_rel) return {Order::acquire, Order::release};
  return {Order::relaxed};
}

std::string described(const Use& use, Order instead) {
  constexpr const char* kAccesses[] = {"load", "store", "update", "fence"};
  constexpr const char* kOrders[] = {"relaxed", "acquire", "release", "acq_rel", "seq_cst"};
  const std::string what = use.access == Access::fence
                               ? std::string("a fence")
                               : use.name + "'s " + kAccesses[std::size_t(use.access)];
  return what + " of " + kOrders[std::size_t(use.order)] +
         " order: " + kOrders[std::size_t(instead)] + " is enough";
}

}  // namespace

KIT_SCENARIO(executions) {
  const auto result = explored(in.text("task"), in.integers("numbers"));
  out.put("failure", result.failure);
  out.put("execution", result.execution);
  out.put("executions", std::int64_t(result.executions));
  out.put("complete", result.complete);
}

// Runs programs of one task, each of `arity` numbers, with each requested order weakened. enough:
// the weaker orders with which all programs are still right.
KIT_SCENARIO(weaker_orders) {
  const std::string task = in.text("task");
  const Numbers all = in.integers("numbers");
  const std::int64_t arity = in.integer("arity");
  const auto first_failure = [&] {
    for (auto at = all.begin(); at != all.end(); at += arity) {
      const auto result = explored(task, Numbers(at, at + arity));
      if (!result.failure.empty()) return result.failure;
    }
    return std::string();
  };
  uses.clear();
  out.put("failure", first_failure());
  const std::set<Use> asked_for = uses;
  std::string enough;
  std::int64_t tried = 0;
  for (const Use& use : asked_for)
    for (const Order instead : weaker_than(use)) {
      if (use.name == "wakes") continue;  // the driver's variable, not the student's
      weakened = &use;
      weaker = instead;
      ++tried;
      if (first_failure().empty()) enough += described(use, instead) + "\n";
      weakened = nullptr;
    }
  out.put("tried", tried);
  out.put("enough", enough);
}

// Runs the student's slots with <atomic> on two threads of this processor. A second thread returns
// each number plus one.
KIT_SCENARIO(real_threads) {
  const std::int64_t messages = in.integer("messages");
  lab19::Slots<Real> there(std::size_t(in.integer("slots"))), back(2);
  std::array<std::string, 2> missing;  // by thread
  const auto attempted = [&](std::size_t thread, auto body) {
    try {
      body();
    } catch (const kit::NotAttempted& e) {
      missing[thread] = e.task;
      Real::over = true;
    } catch (const Real::Over&) {
    }
  };
  std::thread echo([&] {
    attempted(1, [&] {
      for (std::int64_t m = 0; m < messages; ++m) back.send(there.receive() + 1);
    });
  });
  Numbers got;
  attempted(0, [&] {
    for (std::int64_t m = 0; m <= messages; ++m) {  // keeps one message in flight
      if (m < messages) there.send(m * m);
      if (m > 0) got.push_back(back.receive());
    }
  });
  echo.join();
  for (const std::string& task : missing)
    if (!task.empty()) throw kit::NotAttempted{task};
  out.put("got", got);
}
