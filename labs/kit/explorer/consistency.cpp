// The memory model: RC11, with the release sequences of C++20 (of updates only).
//
//   happens before     program order, and from a release to an acquire that reads from it: from the
//                      store or a fence before it, to the load or a fence after it
//   coherence          a thread never sees an older store to a location than one that it knows
//   atomicity          the store of an update follows the store that its load read
//   seq_cst            one total order of all seq_cst accesses and fences agrees with the values
//                      that they see (the relation psc has no cycle)
//   no thin air        no load reads a store that depends on it: by construction, since a run makes
//                      the store first
#include <algorithm>

#include "labs/kit/explorer/execution.hpp"

namespace explorer {

void Execution::clear() {
  for (Location& location : locations) location.accesses.clear(), location.declared = false;
}

void Execution::begin(std::size_t threads) {
  events_.resize(threads);
  for (auto& events : events_) events.clear();
  states_.assign(threads, {});
  sc_.assign(threads, {});
  has_sc_fence_ = false;
}

std::size_t Execution::position(std::uint32_t place, Id store) const {
  if (store.initial()) return 0;
  const auto& order = orders[place];
  return std::size_t(std::find(order.begin(), order.end(), store) - order.begin()) + 1;
}

std::size_t Execution::oldest_visible(std::size_t thread, std::uint32_t place) const {
  const Clock& now = states_[thread].now;
  std::size_t oldest = 0;
  for (const Id id : locations[place].accesses) {
    if (now[std::size_t(id.thread)] <= id.index) continue;
    const Event& e = event(id);
    oldest = std::max(oldest, position(place, e.kind == Kind::load ? e.from : e.id));
  }
  return oldest;
}

bool Execution::fits(std::uint32_t place, std::size_t after, bool exclusive, Id source) const {
  const Id before = at(place, after);
  if (exclusive && before != source) return false;
  if (after == orders[place].size()) return true;
  const Id behind = orders[place][after];
  return !(happened(behind) && event(behind).exclusive && event(behind).from == before);
}

Event Execution::next(std::size_t thread, Kind kind, Order order, std::uint32_t place) const {
  const State& s = states_[thread];
  Event e;
  e.kind = kind;
  e.order = order;
  e.place = place;
  e.id = {std::int16_t(thread), std::uint16_t(events_[thread].size())};
  e.before = s.now;
  e.past = s.past;
  e.before[thread] = e.past[thread] = std::uint16_t(e.id.index + 1);
  return e;
}

bool Execution::add(Event e) {
  const auto thread = std::size_t(e.id.thread);
  State& s = states_[thread];
  if (e.kind == Kind::load && !e.from.initial()) {
    const Event& source = event(e.from);
    join(e.past, source.past);
    join(s.acquirable, source.released);
    if (acquires(e.order)) join(e.before, source.released);
  }
  if (e.kind == Kind::fence && acquires(e.order)) join(e.before, s.acquirable);
  if (e.kind == Kind::fence && releases(e.order)) s.fenced = e.before;
  if (e.kind == Kind::store) {
    e.released = releases(e.order) ? e.before : s.fenced;
    if (e.exclusive && !e.from.initial()) join(e.released, event(e.from).released);
  }
  s.now = e.before;
  s.past = e.past;
  has_sc_fence_ = has_sc_fence_ || e.sc_fence();
  if (e.kind != Kind::fence) locations[e.place].accesses.push_back(e.id);
  events_[thread].push_back(e);
  return !e.sc_access() || add_sc(e);
}

namespace {
// True if earlier happens before later, or is the same event.
bool knows(const Event& later, const Event& earlier) {
  return later.before[std::size_t(earlier.id.thread)] > earlier.id.index;
}
}  // namespace

// True if a precedes b in extended coherence (mo, rb, rf and their compositions): a's store
// precedes b's in the location's order, or b reads from the store a.
bool Execution::extended_coherence(const Event& a, const Event& b) const {
  if (a.kind == Kind::fence || b.kind == Kind::fence || a.place != b.place || a.id == b.id)
    return false;
  const std::size_t pa = position(a.place, a.kind == Kind::load ? a.from : a.id);
  const std::size_t pb = position(b.place, b.kind == Kind::load ? b.from : b.id);
  if (pa != pb) return pa < pb;
  return a.kind == Kind::store && b.kind == Kind::load;  // b reads from a
}

// scb of RC11: sb, hb on one location, mo, rb, and hb between two steps of sb to other locations.
bool Execution::sc_before(const Event& a, const Event& b) const {
  if (a.id == b.id) return false;
  if (a.id.thread == b.id.thread) return a.id.index < b.id.index;
  const bool same_place = a.kind != Kind::fence && b.kind != Kind::fence && a.place == b.place;
  if (same_place && knows(b, a)) return true;
  if (same_place && b.kind == Kind::store && extended_coherence(a, b)) return true;  // mo, rb
  const auto elsewhere = [](const Event& x, const Event& e) {
    return x.kind == Kind::fence || e.kind == Kind::fence || x.place != e.place;
  };
  const auto& mine = events_[std::size_t(a.id.thread)];
  const auto& theirs = events_[std::size_t(b.id.thread)];
  std::size_t x = a.id.index + 1, y = b.id.index;  // y: one past the last
  while (x < mine.size() && !elsewhere(mine[x], a)) ++x;
  while (y > 0 && !elsewhere(theirs[y - 1], b)) --y;
  return x < mine.size() && y > 0 && knows(theirs[y - 1], mine[x]);
}

// Returns false if the seq_cst accesses can no longer be ordered totally. The accesses of a thread
// are ordered, so for each thread, the first one after an access and the last one before it
// suffice.
bool Execution::add_sc(const Event& e) {
  const auto thread = std::size_t(e.id.thread);
  Clock after, before{};  // [thread]: first index in sc_ after e; number before e
  after.fill(kNone);
  const auto earliest = [](Clock& to, const Clock& from) {
    for (std::size_t t = 0; t < to.size(); ++t) to[t] = std::min(to[t], from[t]);
  };
  for (std::size_t t = 0; t < threads(); ++t) {
    const auto& others = sc_[t];
    // An access made before e can follow e only by coherence.
    for (std::size_t i = 0; i < others.size() && t != thread; ++i)
      if (const Event& other = event(others[i].id); other.place == e.place && sc_before(e, other)) {
        after[t] = std::min(after[t], std::uint16_t(i));
        earliest(after, others[i].after);
        break;
      }
    for (std::size_t i = others.size(); i > 0 && before[t] == 0; --i)
      if (sc_before(event(others[i - 1].id), e)) before[t] = std::uint16_t(i);
  }
  for (std::size_t t = 0; t < threads(); ++t)
    if (after[t] < before[t]) return false;
  Clock from_e = after;
  from_e[thread] = std::min(after[thread], std::uint16_t(sc_[thread].size()));
  for (std::size_t t = 0; t < threads(); ++t)
    for (std::size_t i = sc_[t].size(); i > 0; --i) {
      Clock& its = sc_[t][i - 1].after;
      bool precedes = i <= before[t], news = false;
      for (std::size_t u = 0; u < threads(); ++u) {
        precedes = precedes || its[u] < before[u];
        news = news || its[u] > from_e[u];
      }
      if (precedes && !news) break;  // neither this access nor an earlier one learns anything
      if (precedes) earliest(its, from_e);
    }
  sc_[thread].push_back({e.id, after});
  return true;
}

// Checks all of psc. Not optimized, because fences are rare.
bool Execution::fences_agree() const {
  std::vector<const Event*> all, sc;
  for (const auto& events : events_)
    for (const Event& e : events) {
      all.push_back(&e);
      if (e.order == seq_cst) sc.push_back(&e);
    }
  const auto happens_before = [](const Event& a, const Event& b) {
    return a.id != b.id && knows(b, a);
  };
  const auto ordered = [&](const Event& a, const Event& b) {
    const bool left = a.sc_fence(), right = b.sc_fence();
    if (left && right && happens_before(a, b)) return true;
    for (const Event* x : all) {
      if (x->id != a.id && !(left && happens_before(a, *x))) continue;
      for (const Event* y : all) {
        if (y->id != b.id && !(right && happens_before(*y, b))) continue;
        if (sc_before(*x, *y)) return true;
        if (left && right && x->id != a.id && y->id != b.id && extended_coherence(*x, *y))
          return true;
      }
    }
    return false;
  };
  const std::size_t n = sc.size();
  std::vector<std::vector<bool>> reached(n, std::vector<bool>(n));
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) reached[i][j] = ordered(*sc[i], *sc[j]);
  for (std::size_t k = 0; k < n; ++k)
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        if (reached[i][k] && reached[k][j]) reached[i][j] = true;
  for (std::size_t i = 0; i < n; ++i)
    if (reached[i][i]) return false;
  return true;
}

}  // namespace explorer
