// The search: every execution, each once.
//
// A *run* executes the program. It follows a guide as far as that goes, then adds one event after
// the other, of the first thread that can go on. Where there is a choice it takes one way and puts
// a guide for each other way on a stack:
//
//   a load     reads from any store that it may still see; the last in the order first
//   a store    stands anywhere in the order of its location, where no thread would have to go back;
//              and loads that have read something else may read from it: all that was added after
//              the load is taken back, unless the store depends on it ("revisit")
//
// The same execution would so be reached in many ways. One of them counts: what a revisit takes
// back must be what the search would have tried first, which is to say every load there reads from
// the last store, and every store is the last, of those that were there (TruSt: "maximally added").
//
// A wait reads once. If that does not end it, its thread stands still, and goes on in the
// executions in which that load is revisited by a later store. Threads that stand still although
// they have seen the last store wait forever.
#include <algorithm>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <ucontext.h>

#include "labs/kit/explorer/execution.hpp"
#include "labs/kit/explorer/story.hpp"

namespace explorer {
namespace {

constexpr std::size_t kStackBytes = std::size_t{128} << 10;

enum class Standing : std::uint8_t { ready, at_frontier, waits, done };

struct Fiber {
  ucontext_t context{};
  std::unique_ptr<std::byte[]> stack;
  Standing standing = Standing::ready;
  std::optional<Id> needs;  // a store that this run has yet to make
  bool in_wait = false;
  std::size_t wait_begins = 0;  // first event of the wait's condition
  Site last_site = nullptr;     // of the last event, if that was a load
  Key last_key = 0;
  std::size_t last_begins = 0;  // its events
};

// Of a byte of plain memory: who has stored it last, and who has loaded it since.
struct Shadow {
  std::uint64_t run = 0;
  std::int16_t writer = -1;
  std::uint16_t written = 0;
  std::uint32_t step = 0;
  std::array<std::uint16_t, kMostThreads> read{};
  std::array<std::uint32_t, kMostThreads> read_step{};
};

class Search {
 public:
  Search(const std::function<Program()>& make, const Options& options)
      : make_(make), options_(options) {}
  Result all();

  // ---- for the threads of the program ----
  Key new_key() { return next_key_++; }
  void declare(Key key, const std::string& name, Value initial);
  [[nodiscard]] bool declared(Key key) const {
    const auto at = places_.find(key);
    return at != places_.end() && execution_.locations[at->second].declared;
  }
  Value load(Key key, Order order, Site site, int bytes);
  void store(Key key, Value value, Order order, int bytes);
  Value update(Key key, const char* name, const Next& next, Order order, Order if_not);
  void fence(Order order);
  void touch(Key first, std::size_t bytes, bool write, const char* name, std::int64_t index,
             const Value* shown);
  void begin_wait();
  void end_wait(bool ready);
  [[noreturn]] void fail(const std::string& what);
  void outcome(const std::string& text) { outcome_ = text; }
  [[nodiscard]] bool in_thread() const { return running_ >= 0 || after_; }

  std::function<void(std::size_t)> switched;

 private:
  void run();
  void follow();
  void extend();
  void conclude();
  void resume(std::size_t thread);
  static void enter();
  [[gnu::noinline]] static void prepare(Fiber& f);
  void give_way();           // to the scheduler; returns when the thread is resumed
  [[noreturn]] void drop();  // the model does not allow this run
  [[noreturn]] void stand_still();
  void await_turn();
  [[nodiscard]] std::size_t self() const { return std::size_t(running_); }
  [[nodiscard]] Fiber& fiber() { return fibers_[self()]; }
  [[nodiscard]] bool guided() const {
    return execution_.events(self()).size() < guide_.threads[self()].size();
  }
  [[nodiscard]] const Guide::Entry& entry() const {
    return guide_.threads[self()][execution_.events(self()).size()];
  }
  [[nodiscard]] std::uint32_t place_of(Key key);
  void end_update();
  [[nodiscard]] Order weakened(std::uint32_t place, Access access, Order order, bool* torn);

  Id choose(Event& load);
  void put(Event& store);
  void revisit(const Event& store);
  [[nodiscard]] bool maximal(const Event& e, const Event& store) const;
  void commit(const Event& event, const char* name);
  void push(Guide guide) { stack_.push_back(std::move(guide)); }
  void note_race(std::uint32_t one, std::uint32_t other);

  const std::function<Program()>& make_;
  const Options& options_;
  Result result_;
  std::vector<Guide> stack_;
  Program program_;
  std::vector<Fiber> fibers_;
  ucontext_t scheduler_{};
  int running_ = -1;
  static constexpr int kFollowing = -2, kNobodys = -1;
  int turn_ = kFollowing;  // the thread that may add events
  bool dropped_ = false, stopped_ = false, after_ = false;
  Guide guide_;
  Execution execution_;
  Story story_;
  std::unordered_map<Key, std::uint32_t> places_;
  std::unordered_map<Key, Shadow> shadows_;
  Key next_key_ = 1;
  std::string failure_;
  std::pair<std::uint32_t, std::uint32_t> race_;  // its steps
  std::string outcome_;
};

Search* current = nullptr;

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
    throw std::logic_error("the explorer meets a location that nobody has declared");
  return at->second;
}

Order Search::weakened(std::uint32_t place, Access access, Order order, bool* torn) {
  for (const Weakening& w : options_.weakened) {
    const std::string& name =
        access == Access::fence ? std::string("fence") : execution_.locations[place].name;
    if (w.access != access || (name != w.location && name.rfind(w.location + "[", 0) != 0)) continue;
    ++result_.weakened;
    if (w.torn && torn != nullptr) *torn = true;
    if (!w.torn) order = w.order;
  }
  return order;
}

// ---- fibers ----

void Search::enter() {
  Search& s = *current;
  const std::size_t me = s.self();
  std::string thrown;  // a fiber that is never resumed must not stand in a handler
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

// Until the run has followed its guide to the end, and this thread is to add an event.
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

// ---- what threads do ----

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

// What the search has made urgent is done: the turn is again the first thread's that can go on.
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
  // A single load that has read an old store, although newer ones were there when it was added: it
  // reads them in other executions, and this one leads to no other (it is not maximal).
  const auto& events = execution_.events(self());
  if (events.size() == me.wait_begins + 1) {
    const Event& e = events.back();
    const auto& order = execution_.orders[e.place];
    for (std::size_t p = execution_.position(e.place, e.from); p < order.size(); ++p)
      if (guide_.threads[std::size_t(order[p].thread)][order[p].index].stamp < e.stamp) drop();
  }
  stand_still();
}

// ---- choices ----

// The store that a load reads from.
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

// The position of a store.
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

// Guides in which a load that is there already reads from this new store.
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
    // Where it may stand among the stores that are left.
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

// Is e what the search would have tried first, among what was there before it or is in the store's
// past?
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

// Every thread does what the guide has of it. A thread that reads from a store waits until that has
// been made; so the run is in an order that agrees with all that depends on each other.
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
