#include "tests/memory_order/oracle.hpp"

#include <algorithm>

namespace oracle {
namespace {

constexpr int kPlaces = 2;

struct Relation {
  explicit Relation(std::size_t size) : n(size), is(size * size) {}
  std::size_t n;
  std::vector<char> is;
  char& at(std::size_t a, std::size_t b) { return is[a * n + b]; }
  [[nodiscard]] bool has(std::size_t a, std::size_t b) const { return is[a * n + b] != 0; }
  Relation& close() {
    for (std::size_t k = 0; k < n; ++k)
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < n; ++j)
          if (has(i, k) && has(k, j)) at(i, j) = 1;
    return *this;
  }
  [[nodiscard]] bool cyclic() const {
    Relation closed = *this;
    closed.close();
    for (std::size_t i = 0; i < n; ++i)
      if (closed.has(i, i)) return true;
    return false;
  }
};
Relation operator|(Relation a, const Relation& b) {
  for (std::size_t i = 0; i < a.is.size(); ++i) a.is[i] |= b.is[i];
  return a;
}
Relation then(const Relation& a, const Relation& b) {
  Relation c(a.n);
  for (std::size_t i = 0; i < a.n; ++i)
    for (std::size_t k = 0; k < a.n; ++k)
      if (a.has(i, k))
        for (std::size_t j = 0; j < a.n; ++j)
          if (b.has(k, j)) c.at(i, j) = 1;
  return c;
}
template <class F>
Relation where(const Relation& a, F f) {
  Relation c(a.n);
  for (std::size_t i = 0; i < a.n; ++i)
    for (std::size_t j = 0; j < a.n; ++j)
      if (a.has(i, j) && f(i, j)) c.at(i, j) = 1;
  return c;
}

struct Candidate {
  const Operation* op = nullptr;  // null: the initial value of place
  int thread = -1, place = 0;
  std::size_t from = 0;  // of loads
  int read = 0, value = 0;
  bool reads = false, writes = false;
};

class Enumeration {
 public:
  explicit Enumeration(const Litmus& litmus) : litmus_(litmus) {
    for (int p = 0; p < kPlaces; ++p) {
      Candidate c;
      c.place = p;
      c.writes = true;
      events_.push_back(c);
    }
    for (std::size_t t = 0; t < litmus.size(); ++t)
      for (const Operation& op : litmus[t]) {
        Candidate c;
        c.op = &op;
        c.thread = int(t);
        c.place = op.what == What::fence ? -1 : op.place;
        c.reads = op.what == What::load || op.what == What::add || op.what == What::swap_if_zero;
        events_.push_back(c);
      }
  }
  Outcomes all() {
    choose_from(0);
    return found_;
  }

 private:
  void choose_from(std::size_t i) {
    while (i < events_.size() && !events_[i].reads) ++i;
    if (i == events_.size()) return evaluate();
    for (std::size_t w = 0; w < events_.size(); ++w) {
      const Candidate& c = events_[w];
      if (w == i || c.place != events_[i].place) continue;
      if (c.op != nullptr && c.op->what == What::load) continue;
      events_[i].from = w;
      choose_from(i + 1);
    }
  }

  void evaluate() {
    const std::size_t n = events_.size();
    Relation dependence(n);
    for (std::size_t i = 0; i < n; ++i) {
      if (events_[i].reads) dependence.at(events_[i].from, i) = 1;
      for (std::size_t j = 0; j < n; ++j)
        if (sequenced(i, j)) dependence.at(i, j) = 1;
    }
    if (dependence.cyclic()) return;  // out of thin air
    dependence.close();
    std::vector<std::size_t> order(n);
    for (std::size_t i = 0; i < n; ++i) order[i] = i;
    std::vector<std::size_t> depth(n);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) depth[i] += dependence.has(j, i);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return depth[a] < depth[b]; });
    for (const std::size_t i : order) {
      Candidate& c = events_[i];
      if (c.op == nullptr || c.op->what == What::fence) continue;
      if (c.reads) {
        if (!events_[c.from].writes) return;  // a failed compare_exchange
        c.read = events_[c.from].value;
      }
      c.writes = c.op->what != What::load;
      if (c.op->what == What::swap_if_zero) c.writes = c.read == 0;
      c.value = c.op->what == What::add ? c.read + c.op->value : c.op->value;
    }
    for (int p = 0; p < kPlaces; ++p) {
      stores_[p].clear();
      for (std::size_t i = 0; i < n; ++i)
        if (events_[i].writes && events_[i].place == p && events_[i].op != nullptr)
          stores_[p].push_back(i);
    }
    do {
      do judge();
      while (std::next_permutation(stores_[1].begin(), stores_[1].end()));
    } while (std::next_permutation(stores_[0].begin(), stores_[0].end()));
  }

  [[nodiscard]] bool sequenced(std::size_t i, std::size_t j) const {
    if (events_[i].op == nullptr) return events_[j].op != nullptr;
    return events_[i].thread == events_[j].thread && i < j;
  }
  // The operation's effective order. A failed compare_exchange is a relaxed load.
  [[nodiscard]] Order order_of(const Candidate& c) const {
    if (c.op == nullptr) return explorer::relaxed;
    return c.op->what == What::swap_if_zero && !c.writes ? explorer::relaxed : c.op->order;
  }

  void judge() {
    const std::size_t n = events_.size();
    Relation sb(n), rf(n), mo(n), rb(n);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        if (sequenced(i, j)) sb.at(i, j) = 1;
    for (int p = 0; p < kPlaces; ++p) {
      const auto& s = stores_[p];
      for (std::size_t i = 0; i < s.size(); ++i) {
        mo.at(std::size_t(p), s[i]) = 1;
        for (std::size_t j = i + 1; j < s.size(); ++j) mo.at(s[i], s[j]) = 1;
      }
    }
    for (std::size_t r = 0; r < n; ++r) {
      if (!events_[r].reads) continue;
      rf.at(events_[r].from, r) = 1;
      for (std::size_t w = 0; w < n; ++w)
        if (w != r && mo.has(events_[r].from, w)) rb.at(r, w) = 1;
    }
    for (std::size_t r = 0; r < n; ++r)  // atomicity
      if (events_[r].reads && events_[r].writes) {
        if (!mo.has(events_[r].from, r)) return;
        for (std::size_t w = 0; w < n; ++w)
          if (mo.has(events_[r].from, w) && mo.has(w, r)) return;
      }
    const auto fence = [&](std::size_t i) {
      return events_[i].op != nullptr && events_[i].op->what == What::fence;
    };
    const auto releasing = [&](std::size_t i) { return explorer::releases(order_of(events_[i])); };
    const auto acquiring = [&](std::size_t i) { return explorer::acquires(order_of(events_[i])); };
    // Release sequences: the store, and the chain of updates that follows it.
    const Relation chain = where(rf, [&](std::size_t, std::size_t j) { return events_[j].writes; });
    Relation sequence = chain;
    sequence.close();
    for (std::size_t i = 0; i < n; ++i) sequence.at(i, i) = 1;
    const Relation reaches = then(sequence, rf);
    Relation sw(n);
    for (std::size_t w = 0; w < n; ++w)
      for (std::size_t r = 0; r < n; ++r) {
        if (!reaches.has(w, r) || events_[w].op == nullptr) continue;
        for (std::size_t a = 0; a < n; ++a) {
          const bool from = (a == w && releasing(w)) || (fence(a) && releasing(a) && sb.has(a, w));
          for (std::size_t b = 0; from && b < n; ++b)
            if ((b == r && acquiring(r)) || (fence(b) && acquiring(b) && sb.has(r, b)))
              sw.at(a, b) = 1;
        }
      }
    Relation hb = sb | sw;
    hb.close();
    Relation eco = rf | mo | rb;
    eco.close();
    for (std::size_t i = 0; i < n; ++i) {
      if (hb.has(i, i)) return;
      for (std::size_t j = 0; j < n; ++j)
        if (i != j && hb.has(i, j) && eco.has(j, i)) return;  // coherence
    }
    if (!ordered(sb, mo, rb, hb, eco)) return;
    std::vector<std::vector<int>> seen(litmus_.size());
    for (const Candidate& c : events_)
      if (c.reads) seen[std::size_t(c.thread)].push_back(c.read);
    std::vector<int> last;
    for (int p = 0; p < kPlaces; ++p)
      last.push_back(stores_[p].empty() ? 0 : events_[stores_[p].back()].value);
    ++found_[text_of(seen, last)];
  }

  [[nodiscard]] bool ordered(const Relation& sb, const Relation& mo, const Relation& rb,
                             const Relation& hb, const Relation& eco) const {
    const std::size_t n = events_.size();
    const auto elsewhere = where(sb, [&](std::size_t i, std::size_t j) {
      return events_[i].place != events_[j].place || events_[i].place < 0;
    });
    const auto same_place = where(hb, [&](std::size_t i, std::size_t j) {
      return events_[i].place == events_[j].place && events_[i].place >= 0;
    });
    const Relation scb = sb | then(then(elsewhere, hb), elsewhere) | same_place | mo | rb;
    Relation left(n), right(n), fences(n);  // [Esc] u [Fsc];hb?   [Esc] u hb?;[Fsc]   [Fsc]
    for (std::size_t i = 0; i < n; ++i) {
      if (events_[i].op == nullptr || order_of(events_[i]) != explorer::seq_cst) continue;
      left.at(i, i) = right.at(i, i) = 1;
      if (events_[i].op->what != What::fence) continue;
      fences.at(i, i) = 1;
      for (std::size_t j = 0; j < n; ++j) {
        if (hb.has(i, j)) left.at(i, j) = 1;
        if (hb.has(j, i)) right.at(j, i) = 1;
      }
    }
    const Relation base = then(then(left, scb), right);
    const Relation across = then(then(fences, hb | then(then(hb, eco), hb)), fences);
    return !(base | across).cyclic();
  }

  const Litmus& litmus_;
  std::vector<Candidate> events_;
  std::vector<std::size_t> stores_[kPlaces];
  Outcomes found_;
};

}  // namespace

std::string text_of(const std::vector<std::vector<int>>& seen, const std::vector<int>& last) {
  std::string text;
  for (const auto& thread : seen) {
    for (const int v : thread) text += std::to_string(v);
    text += '|';
  }
  for (const int v : last) text += std::to_string(v);
  return text;
}

Outcomes outcomes(const Litmus& litmus) { return Enumeration(litmus).all(); }

}  // namespace oracle
