// The search: visits every execution exactly once.
//
// A *run* executes the program. It follows a guide to its end, then adds events of the first thread
// that can continue, one at a time. Where there is a choice, the run takes one alternative and
// pushes a guide for each other alternative onto a stack:
//
//   a load     reads from any store that is still visible; from the last one in the order first
//   a store    takes any position in its location's order after the newest store that its thread
//              knows; and existing loads that read something else may read from it: all events
//              added after the load are undone, unless the store depends on them ("revisit")
//
// Without a restriction, a revisit would reach the same execution in many ways. Therefore it may
// undo only events that are the search's first choices (TruSt: "maximally added"): loads that read
// from the last store that existed at the time, and stores that were put last.
//
// A wait reads once. If the value does not end the wait, its thread stops. The thread continues in
// executions in which a later store revisits that load. A stopped thread that has seen the last
// store waits forever.
#include "labs/kit/explorer/search.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace explorer {

Id Search::choose(Event& e) {
  const std::size_t oldest = execution_.oldest_visible(self(), e.place);
  if (guided()) {
    const Guide::Entry followed = entry();
    e.stamp = followed.stamp;
    while (!execution_.happened(followed.from)) {
      fiber().needs = followed.from;
      give_way();
    }
    fiber().needs.reset();
    if (execution_.position(e.place, followed.from) < oldest) drop();
    return followed.from;
  }
  e.stamp = guide_.next_stamp++;
  const std::size_t newest = execution_.orders[e.place].size();
  for (std::size_t p = oldest; p < newest; ++p) {
    const Id from = execution_.at(e.place, p);
    Guide other = guide_;
    other.threads[self()].push_back({e.stamp, from});
    if (e.update) other.urgent = running_;
    push(std::move(other));
  }
  const Id from = execution_.at(e.place, newest);
  guide_.threads[self()].push_back({e.stamp, from});
  return from;
}

void Search::put(Event& e) {
  auto& order = execution_.orders[e.place];
  const std::size_t oldest = execution_.oldest_visible(self(), e.place);
  if (guided()) {
    e.stamp = entry().stamp;
    const std::size_t p = execution_.position(e.place, e.id);
    if (p <= oldest) drop();
    if (e.exclusive && execution_.at(e.place, p - 1) != e.from) drop();
    return;
  }
  e.stamp = guide_.next_stamp++;
  revisit(e);
  guide_.threads[self()].push_back({e.stamp, {}});
  std::optional<std::size_t> last;
  for (std::size_t p = oldest; p <= order.size(); ++p) {
    if (!execution_.fits(e.place, p, e.exclusive, e.from)) continue;
    if (last) {
      Guide other = guide_;
      auto& stores = other.orders[e.place];
      stores.insert(stores.begin() + std::ptrdiff_t(*last), e.id);
      push(std::move(other));
    }
    last = p;
  }
  if (!last) drop();
  order.insert(order.begin() + std::ptrdiff_t(*last), e.id);
  guide_.orders[e.place] = order;
}

// Pushes guides in which an existing load reads from this new store.
void Search::revisit(const Event& store) {
  const auto depends = [&](Id id) { return store.past[std::size_t(id.thread)] > id.index; };
  for (const Id id : execution_.locations[store.place].accesses) {
    const Event& load = execution_.event(id);
    if (load.kind != Kind::load || depends(id)) continue;
    const auto kept = [&](const Event& e) { return e.stamp <= load.stamp || depends(e.id); };
    bool first_choice = maximal(load, store);
    Guide other;
    for (std::size_t t = 0; t < execution_.threads() && first_choice; ++t)
      for (const Event& e : execution_.events(t)) {
        if (kept(e))
          other.threads[t].push_back({e.stamp, e.id == id ? store.id : e.from});
        else if (!maximal(e, store))
          first_choice = false;
      }
    if (!first_choice) continue;
    other.threads[std::size_t(store.id.thread)].push_back({store.stamp, {}});
    other.next_stamp = guide_.next_stamp;
    if (load.update) other.urgent = load.id.thread;
    other.orders = execution_.orders;
    for (auto& order : other.orders)
      std::erase_if(order, [&](Id s) { return !kept(execution_.event(s)); });
    // The possible positions of the store among the remaining stores.
    auto& left = other.orders[store.place];
    const std::size_t oldest = execution_.oldest_visible(self(), store.place);
    const Id known = execution_.at(store.place, oldest);
    const auto begin =
        known.initial() ? 0 : std::find(left.begin(), left.end(), known) - left.begin() + 1;
    const std::vector<Id> before = left;
    for (auto p = std::size_t(begin); p <= before.size(); ++p) {
      const Id previous = p == 0 ? Id{} : before[p - 1];
      if (store.exclusive && previous != store.from) continue;
      if (p < before.size()) {
        const Event& behind = execution_.event(before[p]);
        if (behind.exclusive && behind.from == previous) continue;
      }
      left = before;
      left.insert(left.begin() + std::ptrdiff_t(p), store.id);
      push(other);
    }
  }
}

// True if e is the search's first choice among the events that were added before e or are in the
// store's past.
bool Search::maximal(const Event& e, const Event& store) const {
  if (e.kind == Kind::fence) return true;
  const auto there = [&](const Event& x) {
    return x.stamp <= e.stamp || store.past[std::size_t(x.id.thread)] > x.id.index;
  };
  if (e.kind == Kind::store)
    for (const Id id : execution_.locations[e.place].accesses) {
      const Event& x = execution_.event(id);
      if (x.kind == Kind::load && x.from == e.id && there(x)) return false;
    }
  const std::size_t at = execution_.position(e.place, e.kind == Kind::load ? e.from : e.id);
  const auto& order = execution_.orders[e.place];
  for (std::size_t p = at; p < order.size(); ++p)
    if (there(execution_.event(order[p]))) return false;
  return true;
}

Result Search::all() {
  const auto begin = std::chrono::steady_clock::now();
  stack_.emplace_back();
  while (!stack_.empty() && result_.failure.empty() &&
         result_.executions < options_.most_executions) {
    guide_ = std::move(stack_.back());
    stack_.pop_back();
    run();
  }
  result_.complete = stack_.empty() && result_.failure.empty();
  result_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result_;
}

// ---- the interface of explorer.hpp ----

namespace {
Search* current = nullptr;
}  // namespace

Result explore(const std::function<Program()>& make, const Options& options) {
  if (current != nullptr) throw std::logic_error("an exploration within an exploration");
  Search search(make, options);
  current = &search;
  try {
    Result result = search.all();
    current = nullptr;
    return result;
  } catch (...) {
    current = nullptr;
    throw;
  }
}

void require(bool holds, const std::string& what) {
  if (!holds) current->fail(what);
}
void outcome(const std::string& text) { current->outcome(text); }
bool exploring() { return current != nullptr && current->in_thread(); }
Key new_key() { return current->new_key(); }
void declare(Key key, const std::string& name, Value initial) {
  current->declare(key, name, initial);
}
bool declared(Key key) { return current->declared(key); }
Value load(Key key, Order order, Site site, int bytes) {
  return current->load(key, order, site, bytes);
}
void store(Key key, Value value, Order order, int bytes) {
  current->store(key, value, order, bytes);
}
Value update(Key key, const char* name, const Next& next, Order order, Order if_not) {
  return current->update(key, name, next, order, if_not);
}
void fence(Order order) { current->fence(order); }
void touch(Key first, std::size_t bytes, bool write, const char* name, std::int64_t index,
           const Value* shown) {
  current->touch(first, bytes, write, name, index, shown);
}
void begin_wait() { current->begin_wait(); }
void end_wait(bool ready) { current->end_wait(ready); }
void on_switch(std::function<void(std::size_t)> callback) {
  current->switched = std::move(callback);
}

}  // namespace explorer
