// One execution under construction: the events of each thread, the store that each load reads from,
// the order of the stores to each location, and each event's knowledge of other threads.
//
//     producer   1 tail.store(1, release) ----.                an event: (thread, index)
//                2 tail.store(2, release)      \  reads from
//     consumer   1 tail.load(acquire) -> 1  <---'
//
// Two vector clocks determine whether an event may happen, and with which value: `before` (the
// events that happen before it, in the sense of C++) and `past` (the events on which it may depend:
// program order and reads-from, regardless of memory orders).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "labs/kit/explorer/explorer.hpp"

namespace explorer {

// [thread]: number of the thread's events.
using Clock = std::array<std::uint16_t, kMostThreads>;
inline void join(Clock& to, const Clock& from) {
  for (std::size_t t = 0; t < kMostThreads; ++t) to[t] = std::max(to[t], from[t]);
}

// Thread -1: the initial value of a location.
struct Id {
  std::int16_t thread = -1;
  std::uint16_t index = 0;
  bool operator==(const Id&) const = default;
  [[nodiscard]] bool initial() const { return thread < 0; }
};

enum class Kind : std::uint8_t { load, store, fence };

// A successful update consists of two consecutive events, a load and a store, both `exclusive`; a
// failed update is only a load.
struct Event {
  Kind kind = Kind::load;
  Order order = relaxed;
  // update: this is the load of an update, whether or not the update succeeds
  bool update = false, exclusive = false;
  std::uint32_t place = 0;  // index of the Location
  Value value = 0;
  Id id, from;              // from: the store read by a load, or by an exclusive store's load
  std::uint32_t stamp = 0;  // order in which the search added it
  Clock before{}, past{};   // including the event itself
  Clock released{};         // of a store: the clock passed to a load that acquires
  [[nodiscard]] bool sc_access() const { return kind != Kind::fence && order == seq_cst; }
  [[nodiscard]] bool sc_fence() const { return kind == Kind::fence && order == seq_cst; }
};

struct Location {
  std::string name;
  Value initial = 0;
  bool declared = false;
  std::vector<Id> accesses;  // of all threads, so far
};

// The choices that the program does not determine. A run follows a guide to its end and then
// continues freely.
struct Guide {
  struct Entry {
    std::uint32_t stamp;
    Id from;
  };
  std::array<std::vector<Entry>, kMostThreads> threads;
  std::vector<std::vector<Id>> orders;  // [place]: its stores, without the initial value
  std::uint32_t next_stamp = 0;
  int urgent = -1;  // thread that has loaded in an update but not yet stored
};

class Execution {
 public:
  void clear();  // call before the program declares its locations
  void begin(std::size_t threads);

  [[nodiscard]] const Event& event(Id id) const {
    return events_[std::size_t(id.thread)][id.index];
  }
  [[nodiscard]] bool happened(Id id) const {
    return id.initial() || id.index < events_[std::size_t(id.thread)].size();
  }
  [[nodiscard]] std::size_t threads() const { return events_.size(); }
  [[nodiscard]] const std::vector<Event>& events(std::size_t thread) const {
    return events_[thread];
  }
  [[nodiscard]] Value value_of(Id store, std::uint32_t place) const {
    return store.initial() ? locations[place].initial : event(store).value;
  }
  // Returns the position of a store in the order of its location; 0 is the initial value.
  [[nodiscard]] std::size_t position(std::uint32_t place, Id store) const;
  [[nodiscard]] Id at(std::uint32_t place, std::size_t position) const {
    return position == 0 ? Id{} : orders[place][position - 1];
  }
  // Coherence: returns the position of the newest store that the thread knows, which is the oldest
  // store that it can read.
  [[nodiscard]] std::size_t oldest_visible(std::size_t thread, std::uint32_t place) const;
  // Atomicity: true if a store may directly follow this position. source: the store that the load
  // of an exclusive store read.
  [[nodiscard]] bool fits(std::uint32_t place, std::size_t after, bool exclusive, Id source) const;
  // Returns the thread's next event, not yet part of the execution.
  [[nodiscard]] Event next(std::size_t thread, Kind kind, Order order, std::uint32_t place) const;
  // Returns false if the model forbids the execution. Only the order of seq_cst events can be
  // violated here.
  bool add(Event event);
  [[nodiscard]] bool fences_agree() const;  // false if RC11's relation psc has a cycle

  // Returns the number of events of each thread that this thread knows. A plain access is not an
  // event: a thread knows it if it knows a later event of the thread that made it.
  [[nodiscard]] const Clock& known(std::size_t thread) const { return states_[thread].now; }
  [[nodiscard]] bool has_sc_fence() const { return has_sc_fence_; }

  std::vector<Location> locations;
  std::vector<std::vector<Id>> orders;  // [place], as in a Guide; some stores may not be made yet

 private:
  struct State {
    Clock now{}, past{}, acquirable{}, fenced{};
  };
  static constexpr std::uint16_t kNone = 0xffff;
  [[nodiscard]] bool sc_before(const Event& a, const Event& b) const;
  [[nodiscard]] bool extended_coherence(const Event& a, const Event& b) const;
  bool add_sc(const Event& event);

  std::vector<std::vector<Event>> events_;
  std::vector<State> states_;
  struct ScAccess {
    Id id;
    Clock after;  // [thread]: index of the thread's first seq_cst access after this one
  };
  std::vector<std::vector<ScAccess>> sc_;  // [thread]
  bool has_sc_fence_ = false;
};

}  // namespace explorer
