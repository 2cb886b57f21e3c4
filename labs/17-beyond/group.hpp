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

namespace lab17 {

// Number of elements of each rank.
using Counts = std::vector<std::size_t>;

// Returns a collective in words: "all_gather of 1 1 1 elements of 4 bytes".
inline std::string text_of(const std::string& kind, const Counts& counts, std::size_t element) {
  std::string text = kind + " of";
  for (const std::size_t count : counts) text += " " + std::to_string(count);
  return text + " elements of " + std::to_string(element) + " bytes";
}

// Thrown when ranks or sizes do not agree; the driver turns it into a message.
struct Disagreement {
  std::string message;
};

// The network below a Group, as the driver provides it.
class Network {
 public:
  virtual ~Network() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int world() const = 0;
  // The rank begins a collective. Throws Disagreement if its k-th call is not that of the others.
  virtual void enter(const std::string& kind, const Counts& counts, std::size_t element) = 0;
  // Sends out[r] to rank r and receives in[r] from it, for all other ranks. element: bytes.
  using Out = std::vector<std::span<const std::byte>>;
  using In = std::vector<std::span<std::byte>>;
  virtual void exchange(const Out& out, const In& in, std::size_t element) = 0;
  // Sends data from rank root to all other ranks.
  virtual void spread(int root, std::span<std::byte> data, std::size_t element) = 0;
};

class Group {
 public:
  explicit Group(Network& network) : network_(network) {}

  [[nodiscard]] int rank() const { return network_.rank(); }
  [[nodiscard]] int world() const { return network_.world(); }

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
    network_.spread(root, std::as_writable_bytes(all), sizeof(all[0]));
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
    text_ = text_of(kind, counts, element);
    if (int(counts.size()) != world())
      throw Disagreement{text_ + ": there are " + std::to_string(world()) + " ranks"};
    network_.enter(kind, counts, element);
  }
  void has(const char* what, std::size_t size, std::size_t wanted) const {
    if (size != wanted)
      throw Disagreement{text_ + ": `" + what + "` of rank " + std::to_string(rank()) + " has " +
                         std::to_string(size) + " elements, must have " + std::to_string(wanted)};
  }
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
    Network::Out to;
    Network::In from;
    for (int r = 0; r < world(); ++r) {
      to.push_back(std::as_bytes(part(r)));
      from.push_back(std::as_writable_bytes(place(r)));
    }
    network_.exchange(to, from, sizeof(T));
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
    Network::In from;
    for (int r = 0; r < world(); ++r) from.push_back(std::as_writable_bytes(place(r)));
    network_.exchange(Network::Out(counts.size(), std::as_bytes(part)), from, sizeof(T));
  }
  template <class T>
  void collect(std::span<T> part, const Counts& counts, std::span<T> all) {
    collect(std::span<const T>(part), counts, all);
  }

  Network& network_;
  std::string text_;  // the current collective
};

}  // namespace lab17
