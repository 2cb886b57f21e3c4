// One run of the program: its threads as fibers, their operations, and its end.
#include <algorithm>
#include <stdexcept>

#include "labs/kit/explorer/search.hpp"

namespace explorer {
namespace {
constexpr std::size_t kStackBytes = std::size_t{128} << 10;
Search* entered = nullptr;  // the search whose fiber starts
}  // namespace

void Search::declare(Key key, const std::string& name, Value initial) {
  const auto [at, fresh] = places_.try_emplace(key, std::uint32_t(execution_.locations.size()));
  if (fresh) execution_.locations.emplace_back();
  Location& location = execution_.locations[at->second];
  location.name = name;
  location.initial = initial;
  location.declared = true;
  const std::size_t places = execution_.locations.size();
  if (guide_.orders.size() < places) guide_.orders.resize(places);
  if (execution_.orders.size() < places) execution_.orders.resize(places);
}

std::uint32_t Search::place_of(Key key) {
  const auto at = places_.find(key);
  if (at == places_.end() || !execution_.locations[at->second].declared)
    throw std::logic_error("the explorer met a location that was not declared");
  return at->second;
}

Order Search::weakened(std::uint32_t place, Access access, Order order, bool* torn) {
  for (const Weakening& w : options_.weakened) {
    const std::string& name =
        access == Access::fence ? std::string("fence") : execution_.locations[place].name;
    if (w.access != access || (name != w.location && name.rfind(w.location + "[", 0) != 0))
      continue;
    ++result_.weakened;
    if (w.torn && torn != nullptr) *torn = true;
    if (!w.torn) order = w.order;
  }
  return order;
}

// ---- fibers ----

void Search::enter() {
  Search& s = *entered;
  const std::size_t me = s.self();
  // The exception is reported after the catch block: fail() may leave this fiber forever, and the
  // exception must have been released by then.
  std::string thrown;
  try {
    s.program_.threads[me].body();
  } catch (const std::exception& e) {
    thrown = e.what();
  }
  if (!thrown.empty()) s.fail(s.program_.threads[me].name + " ends with an exception: " + thrown);
  s.fibers_[me].standing = Standing::done;
  s.give_way();
}

void Search::resume(std::size_t thread) {
  running_ = int(thread);
  entered = this;
  if (switched) switched(thread);
  swapcontext(&scheduler_, &fibers_[thread].context);
  running_ = -1;
}

void Search::give_way() { swapcontext(&fiber().context, &scheduler_); }

void Search::drop() {
  dropped_ = true;
  for (;;) give_way();
}

void Search::stand_still() {
  fiber().standing = Standing::waits;
  for (;;) give_way();
}

void Search::fail(const std::string& what) {
  if (failure_.empty()) failure_ = what;
  if (after_) throw std::runtime_error(what);
  stand_still();
}

// Blocks until the run has followed its guide to the end and it is this thread's turn.
void Search::await_turn() {
  if (execution_.events(self()).size() >= options_.most_events)
    fail("thread " + program_.threads[self()].name + " makes more than " +
         std::to_string(options_.most_events) +
         " atomic operations: an endless loop? (wait_until() is a wait)");
  while (turn_ != running_) {
    fiber().standing = Standing::at_frontier;
    give_way();
  }
  if (!failure_.empty()) stand_still();
}

// ---- operations of the threads ----

void Search::commit(const Event& event, const char* name) {
  if (!execution_.add(event)) drop();
  if (turn_ >= 0 && execution_.has_sc_fence() && !execution_.fences_agree()) drop();
  story_.add(execution_.events(self()).back(), name);
  fiber().last_site = nullptr;
}

Value Search::load(Key key, Order order, Site site, int bytes) {
  const std::uint32_t place = place_of(key);
  if (after_) {
    const auto& stores = execution_.orders[place];
    return execution_.value_of(stores.empty() ? Id{} : stores.back(), place);
  }
  Fiber& me = fiber();
  if (!me.in_wait && site != nullptr && me.last_site == site && me.last_key == key) {
    me.wait_begins = me.last_begins;
    end_wait(false);
  }
  bool torn = false;
  order = weakened(place, Access::load, order, &torn);
  const auto once = [&] {
    if (!guided()) await_turn();
    Event e = execution_.next(self(), Kind::load, order, place);
    e.from = choose(e);
    e.value = execution_.value_of(e.from, place);
    commit(e, "load");
    return e.value;
  };
  const std::size_t begins = execution_.events(self()).size();
  Value value = once();
  if (torn && bytes == 8) value = (value & 0xffffffffU) | (once() >> 32 << 32);
  me.last_site = site;
  me.last_begins = begins;
  me.last_key = key;
  return value;
}

void Search::store(Key key, Value value, Order order, int bytes) {
  const std::uint32_t place = place_of(key);
  bool torn = false;
  order = weakened(place, Access::store, order, &torn);
  const auto once = [&](Value v) {
    if (!guided()) await_turn();
    Event e = execution_.next(self(), Kind::store, order, place);
    e.value = v;
    put(e);
    commit(e, "store");
  };
  if (torn && bytes == 8) {
    const auto& stores = execution_.orders[place];
    const Value old = execution_.value_of(
        stores.empty() || !execution_.happened(stores.back()) ? Id{} : stores.back(), place);
    once((value >> 32 << 32) | (old & 0xffffffffU));
  }
  once(value);
}

Value Search::update(Key key, const char* name, const Next& next, Order order, Order if_not) {
  const std::uint32_t place = place_of(key);
  order = weakened(place, Access::update, order, nullptr);
  if (!guided()) await_turn();
  Value value = 0;
  Event e = execution_.next(self(), Kind::load, order, place);
  e.update = true;
  e.from = choose(e);
  e.value = execution_.value_of(e.from, place);
  const Value before = e.value;
  e.exclusive = next(before, value);
  if (!e.exclusive) {
    e.order = if_not;
    commit(e, name);
    end_update();
    return before;
  }
  commit(e, name);
  if (!guided()) await_turn();
  Event s = execution_.next(self(), Kind::store, order, place);
  s.exclusive = true;
  s.from = e.from;
  s.value = value;
  put(s);
  commit(s, name);
  end_update();
  return before;
}

// Called after each update. If it was the urgent thread's update, the turn passes to the first
// thread that can continue.
void Search::end_update() {
  if (guide_.urgent != running_) return;
  guide_.urgent = -1;
  if (turn_ == running_) turn_ = kNobodys;
}

void Search::fence(Order order) {
  order = weakened(0, Access::fence, order, nullptr);
  if (!guided()) {
    await_turn();
    guide_.threads[self()].push_back({guide_.next_stamp++, {}});
  }
  Event e = execution_.next(self(), Kind::fence, order, 0);
  e.stamp = entry().stamp;
  commit(e, "fence");
}

void Search::begin_wait() {
  if (after_) return;
  fiber().in_wait = true;
  fiber().wait_begins = execution_.events(self()).size();
}

void Search::end_wait(bool ready) {
  if (after_) return;
  Fiber& me = fiber();
  me.in_wait = false;
  if (ready) return;
  // Drops the run if the wait's only load read an old store although newer ones existed. Other
  // executions read the newer stores, and this run is not maximal, so it leads to no other
  // execution.
  const auto& events = execution_.events(self());
  if (events.size() == me.wait_begins + 1) {
    const Event& e = events.back();
    const auto& order = execution_.orders[e.place];
    for (std::size_t p = execution_.position(e.place, e.from); p < order.size(); ++p)
      if (guide_.threads[std::size_t(order[p].thread)][order[p].index].stamp < e.stamp) drop();
  }
  stand_still();
}

// ---- plain memory ----

void Search::touch(Key first, std::size_t bytes, bool write, const char* name, std::int64_t index,
                   const Value* shown) {
  if (after_ || running_ < 0) return;
  const std::size_t me = self();
  const Clock& known = execution_.known(me);
  const auto mine = std::uint16_t(execution_.events(me).size() + 1);
  const std::uint32_t step = story_.touch(me, write, name, index, bytes, shown);
  fiber().last_site = nullptr;
  for (Key key = first; key < first + bytes; ++key) {
    Shadow& s = shadows_[key];
    if (s.run != result_.runs) s = {}, s.run = result_.runs;
    const auto races = [&](std::uint32_t other) { note_race(other, step); };
    if (s.writer >= 0 && std::size_t(s.writer) != me && known[std::size_t(s.writer)] < s.written)
      races(s.step);
    for (std::size_t t = 0; write && t < program_.threads.size(); ++t)
      if (t != me && s.read[t] > known[t]) races(s.read_step[t]);
    if (write) {
      s.writer = std::int16_t(me);
      s.written = mine;
      s.step = step;
      s.read = {};
    } else {
      s.read[me] = mine;
      s.read_step[me] = step;
    }
  }
}

void Search::note_race(std::uint32_t one, std::uint32_t other) {
  if (failure_.empty()) {
    failure_ = "data race on " + story_.memory_of(other);
    race_ = {one, other};
  }
  if (turn_ != kFollowing) stand_still();
}

// ---- runs ----

// Every thread follows the guide. A thread that reads from a store waits until that store has been
// made, so the run's order respects all dependencies.
void Search::follow() {
  for (bool moved = true; moved && !dropped_;) {
    moved = false;
    for (std::size_t t = 0; t < fibers_.size() && !dropped_; ++t) {
      Fiber& f = fibers_[t];
      if (f.standing != Standing::ready || (f.needs && !execution_.happened(*f.needs))) continue;
      resume(t);
      moved = true;
    }
  }
  if (dropped_) return;
  for (const Fiber& f : fibers_)
    if (f.standing == Standing::ready) throw std::logic_error("a guide that cannot be followed");
  if (execution_.has_sc_fence() && !execution_.fences_agree()) dropped_ = true;
}

void Search::extend() {
  while (!dropped_ && failure_.empty()) {
    std::size_t t = 0;
    if (guide_.urgent >= 0)
      t = std::size_t(guide_.urgent);
    else
      while (t < fibers_.size() && fibers_[t].standing != Standing::at_frontier) ++t;
    if (t == fibers_.size()) return;
    turn_ = int(t);
    resume(t);
  }
}

void Search::prepare(Fiber& f) {
  getcontext(&f.context);
  f.context.uc_stack.ss_sp = f.stack.get();
  f.context.uc_stack.ss_size = kStackBytes;
  makecontext(&f.context, &Search::enter, 0);
}

void Search::run() {
  ++result_.runs;
  next_key_ = 1;
  execution_.clear();
  execution_.orders = guide_.orders;
  story_.clear();
  dropped_ = false;
  turn_ = kFollowing;
  running_ = -1;
  outcome_.clear();
  failure_.clear();
  race_ = {};
  program_ = make_();
  const std::size_t n = program_.threads.size();
  if (n > kMostThreads) throw std::logic_error("a program of more than 6 threads");
  execution_.begin(n);
  fibers_.resize(n);
  for (Fiber& f : fibers_) {
    auto stack = f.stack ? std::move(f.stack) : std::make_unique<std::byte[]>(kStackBytes);
    f = {};
    f.stack = std::move(stack);
    prepare(f);
  }
  follow();
  if (!dropped_) extend();
  if (!dropped_) conclude();
}

void Search::conclude() {
  std::vector<std::size_t> waiting;
  bool forever = true;
  for (std::size_t t = 0; t < fibers_.size(); ++t) {
    if (fibers_[t].standing != Standing::waits) continue;
    waiting.push_back(t);
    const auto& events = execution_.events(t);
    for (std::size_t i = fibers_[t].wait_begins; i < events.size(); ++i)
      if (events[i].kind == Kind::load && execution_.position(events[i].place, events[i].from) <
                                              execution_.orders[events[i].place].size())
        forever = false;
  }
  if (failure_.empty() && waiting.empty()) {
    ++result_.executions;
    std::size_t events = 0;
    for (std::size_t t = 0; t < fibers_.size(); ++t) events += execution_.events(t).size();
    result_.events = std::max(result_.events, events);
    after_ = true;
    try {
      if (program_.after) program_.after();
    } catch (const std::exception& e) {
      failure_ = e.what();
    }
    after_ = false;
    if (!outcome_.empty()) ++result_.outcomes[outcome_];
  } else if (failure_.empty() && !forever) {
    ++result_.waiting;
  } else if (failure_.empty()) {
    failure_.clear();
    for (const std::size_t t : waiting)
      failure_ += (t == waiting.front() ? "" : " and ") + program_.threads[t].name;
    failure_ += waiting.size() == 1 ? " waits forever" : " wait forever";
  }
  if (failure_.empty()) return;
  if (race_.first != race_.second)
    failure_ += ": nothing orders steps " + std::to_string(story_.number(race_.first)) + " and " +
                std::to_string(story_.number(race_.second));
  result_.failure = failure_;
  std::vector<std::string> names;
  for (const auto& thread : program_.threads) names.push_back(thread.name);
  result_.execution = story_.told(execution_, names);
}

}  // namespace explorer
