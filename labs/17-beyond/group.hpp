// The collectives of this lab, over the links of the simulated network. Given: build your code on
// top of them.
//
//     counts = {3, 2, 2}              rank 0         rank 1         rank 2
//
//     all_to_all   before             a a a a a a a  b b b b b b b  c c c c c c c
//                  afterwards         a a a b b b c c c   a a b b c c   a a b b c c
//     reduce_scatter: as all_to_all, but each rank gets only the sum a+b+c of its elements
//     all_gather   before             x x x          y y            z z
//                  afterwards         x x x y y z z  on every rank
//
// The k-th calls of all ranks form one collective: its kind, counts and element size must agree, or
// the run ends with a message that names both calls. Sums are taken in rank order,
// ((x0 + x1) + x2) + ..., so the bits are the same on every rank, however the elements are divided.
// Each rank sends its parts directly to the others; the total traffic is the same as in a ring.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "labs/kit/fabric/fabric.hpp"

namespace lab17 {

// Number of elements of each rank.
using Counts = std::vector<std::size_t>;

// Thrown when ranks or sizes do not agree; the driver turns it into a message.
struct Disagreement {
  std::string message;
};

class Group {
 public:
  // An entry of the log, which all ranks of a run share: a collective, in the order of the calls.
  struct Call {
    std::string kind, text;
    std::size_t elements = 0;  // in total
    int rank = 0;              // the first rank that called it
  };
  using Log = std::vector<Call>;

  Group(kit::Fabric& fabric, kit::Link& link, Log& log) : fabric_(fabric), link_(link), log_(log) {}

  [[nodiscard]] int rank() const { return link_.rank(); }
  [[nodiscard]] int world() const { return link_.world(); }

  // All arguments except numbers are contiguous ranges: std::vector, std::span, std::array.
  // out: counts[0] elements for rank 0, then counts[1] for rank 1, ... in: counts[rank()] elements
  // from rank 0, then as many from rank 1, ...
  template <class Out, class In>
  void all_to_all(const Out& out, const Counts& counts, In&& in) {
    const std::span from(out);
    enter("all_to_all", counts, sizeof(from[0]));
    has("out", from.size(), total(counts));
    has("in", std::span(in).size(), mine(counts) * counts.size());
    exchange(from, counts, std::span(in));
  }

  // data: a part for each rank, as in all_to_all. part: the sum of this rank's part over all ranks.
  template <class In, class Out>
  void reduce_scatter(const In& data, const Counts& counts, Out&& part) {
    const std::span from(data);
    enter("reduce_scatter", counts, sizeof(from[0]));
    has("data", from.size(), total(counts));
    has("part", std::span(part).size(), mine(counts));
    add_up(from, counts, std::span(part));
  }

  // part: counts[rank()] elements. all: the parts of all ranks, in rank order.
  template <class In, class Out>
  void all_gather(const In& part, const Counts& counts, Out&& all) {
    const std::span from(part);
    enter("all_gather", counts, sizeof(from[0]));
    has("part", from.size(), mine(counts));
    has("all", std::span(all).size(), total(counts));
    collect(from, counts, std::span(all));
  }

  // Replaces data with the sum over all ranks. Sends as many bytes as a reduce_scatter and an
  // all_gather, of which it consists.
  template <class Data>
  void all_reduce(Data&& data) {
    const std::span all(data);
    const Counts counts = evenly(all.size());
    enter("all_reduce", counts, sizeof(all[0]));
    std::vector<std::remove_cvref_t<decltype(all[0])>> part(mine(counts));
    add_up(all, counts, std::span(part));
    collect(std::span(part), counts, all);
  }

  // Copies data from rank `root` to every rank.
  template <class Data>
  void broadcast(Data&& data, int root) {
    const std::span all(data);
    if (root < 0 || root >= world())
      throw Disagreement{"broadcast on rank " + std::to_string(rank()) + ": there is no rank " +
                         std::to_string(root) + " in a world of " + std::to_string(world())};
    Counts counts(std::size_t(world()), 0);
    counts[std::size_t(root)] = all.size();
    enter("broadcast", counts, sizeof(all[0]));
    if (rank() != root) link_.recv(root, all);
    for (int to = 0; rank() == root && to < world(); ++to)
      if (to != root) link_.send(to, all);
  }

 private:
  static std::size_t total(const Counts& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  }
  [[nodiscard]] std::size_t mine(const Counts& counts) const { return counts[std::size_t(rank())]; }
  [[nodiscard]] Counts evenly(std::size_t count) const {
    Counts counts;
    for (std::size_t r = 0, n = std::size_t(world()); r < n; ++r)
      counts.push_back(count * (r + 1) / n - count * r / n);
    return counts;
  }

  void enter(const char* kind, const Counts& counts, std::size_t element) {
    std::string text = std::string(kind) + " of";
    for (const std::size_t count : counts) text += " " + std::to_string(count);
    text += " elements of " + std::to_string(element) + " bytes";
    if (int(counts.size()) != world())
      throw Disagreement{text + ": there are " + std::to_string(world()) + " ranks"};
    fabric_.begin(rank(), kind);
    const std::size_t number = next_++;
    if (number == log_.size()) log_.push_back({kind, text, total(counts), rank()});
    if (log_[number].text != text)
      throw Disagreement{"collective #" + std::to_string(number) + ": rank " +
                         std::to_string(rank()) + " calls " + text + ", rank " +
                         std::to_string(log_[number].rank) + " calls " + log_[number].text};
  }
  void has(const char* what, std::size_t size, std::size_t wanted) const {
    if (size != wanted)
      throw Disagreement{log_[next_ - 1].text + ": `" + what + "` of rank " +
                         std::to_string(rank()) + " has " + std::to_string(size) +
                         " elements, must have " + std::to_string(wanted)};
  }

  // Return the rank `distance` before this one, and the rank `distance` after it.
  [[nodiscard]] int before(int distance) const { return (rank() + world() - distance) % world(); }
  [[nodiscard]] int after(int distance) const { return (rank() + distance) % world(); }

  template <class T>
  void exchange(std::span<const T> out, const Counts& counts, std::span<T> in) {
    const std::size_t each = mine(counts);
    const auto part = [&](int to) {
      const std::size_t first =
          std::accumulate(counts.begin(), counts.begin() + to, std::size_t{0});
      return out.subspan(first, counts[std::size_t(to)]);
    };
    const auto place = [&](int from) { return in.subspan(std::size_t(from) * each, each); };
    std::ranges::copy(part(rank()), place(rank()).begin());
    for (int d = 1; d < world(); ++d)
      link_.exchange(after(d), part(after(d)), before(d), place(before(d)));
  }
  template <class T>
  void exchange(std::span<T> out, const Counts& counts, std::span<T> in) {
    exchange(std::span<const T>(out), counts, in);
  }

  template <class T>
  void add_up(std::span<const T> data, const Counts& counts, std::span<T> part) {
    std::vector<T> parts(part.size() * counts.size());
    exchange(data, counts, std::span<T>(parts));
    for (std::size_t i = 0; i < part.size(); ++i) {
      part[i] = parts[i];
      for (std::size_t r = 1; r < counts.size(); ++r) part[i] += parts[r * part.size() + i];
    }
  }
  template <class T>
  void add_up(std::span<T> data, const Counts& counts, std::span<T> part) {
    add_up(std::span<const T>(data), counts, part);
  }

  template <class T>
  void collect(std::span<const T> part, const Counts& counts, std::span<T> all) {
    const auto place = [&](int from) {
      const std::size_t first =
          std::accumulate(counts.begin(), counts.begin() + from, std::size_t{0});
      return all.subspan(first, counts[std::size_t(from)]);
    };
    const std::span<T> own = place(rank());
    if (own.data() != part.data()) std::ranges::copy(part, own.begin());
    for (int d = 1; d < world(); ++d) link_.exchange(after(d), part, before(d), place(before(d)));
  }
  template <class T>
  void collect(std::span<T> part, const Counts& counts, std::span<T> all) {
    collect(std::span<const T>(part), counts, all);
  }

  kit::Fabric& fabric_;
  kit::Link& link_;
  Log& log_;
  std::size_t next_ = 0;
};

}  // namespace lab17
