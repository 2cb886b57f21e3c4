// Atomics and plain memory that the explorer observes, for programs that take their memory as a
// template parameter.
//
//     template <class Memory> struct Mailbox {
//       typename Memory::template atomic<int> full{"full", 0};
//       typename Memory::template plain<int> letter{"letter"};
//     };
//     Mailbox<explorer::Memory>, Mailbox<StandardMemory>
#pragma once

#include <bit>
#include <cstring>

#include "labs/kit/explorer/explorer.hpp"

namespace explorer {

template <class T>
Value as_value(T x) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(Value));
  Value v = 0;
  std::memcpy(&v, &x, sizeof x);
  return v;
}
template <class T>
T from_value(Value v) {
  T x;
  std::memcpy(&x, &v, sizeof x);
  return x;
}

template <class T>
class atomic {
 public:
  atomic(const char* name, T initial) : key_(new_key()) { declare(key_, name, as_value(initial)); }
  atomic(const atomic&) = delete;
  atomic& operator=(const atomic&) = delete;

  // A loop that only repeats this load is a wait. __builtin_return_address identifies the loop.
  [[gnu::noinline]] T load(Order order = seq_cst) const {
    return from_value<T>(explorer::load(key_, order, __builtin_return_address(0)));
  }
  void store(T value, Order order = seq_cst) { explorer::store(key_, as_value(value), order); }
  T exchange(T value, Order order = seq_cst) {
    return updated("exchange", order, [=](T) { return value; });
  }
  T fetch_add(T value, Order order = seq_cst) {
    return updated("fetch_add", order, [=](T old) { return static_cast<T>(old + value); });
  }
  bool compare_exchange_strong(T& expected, T desired, Order order = seq_cst,
                               Order if_not = seq_cst) {
    const Value before = update(
        key_, "compare_exchange",
        [&](Value old, Value& next) {
          next = as_value(desired);
          return old == as_value(expected);
        },
        order, if_not);
    const bool done = before == as_value(expected);
    expected = from_value<T>(before);
    return done;
  }
  [[nodiscard]] Key key() const { return key_; }

 private:
  template <class F>
  T updated(const char* name, Order order, F f) {
    return from_value<T>(update(
        key_, name,
        [&](Value old, Value& next) {
          next = as_value(f(from_value<T>(old)));
          return true;
        },
        order));
  }
  Key key_;
};

// Memory that is not atomic: two unordered accesses by different threads, at least one of them a
// store, are a data race.
template <class T>
class plain {
 public:
  explicit plain(const char* name, T initial = {})
      : key_(new_key()), name_(name), value_(initial) {}
  plain(const plain&) = delete;
  plain& operator=(const plain&) = delete;
  [[nodiscard]] T get() const {
    const Value shown = as_value(value_);
    touch(key_, 1, false, name_, -1, &shown);
    return value_;
  }
  void set(T value) {
    value_ = value;
    const Value shown = as_value(value_);
    touch(key_, 1, true, name_, -1, &shown);
  }

 private:
  Key key_;
  const char* name_;
  T value_;
};

struct Memory {
  template <class T>
  using atomic = explorer::atomic<T>;
  template <class T>
  using plain = explorer::plain<T>;
  static void fence(Order order) { explorer::fence(order); }
};

}  // namespace explorer
