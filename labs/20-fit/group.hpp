// The collectives of this lab, over the links of the simulated network. Given: build your code on
// top of them.
//
//     world 3, parts of 2        rank 0      rank 1      rank 2
//
//     all_gather      part       a b         c d         e f
//                     all        a b c d e f on every rank
//     reduce_scatter  data       x0 ... x5   y0 ... y5   z0 ... z5
//                     part       sums 0, 1   sums 2, 3   sums 4, 5
//
// All parts have the same length. The k-th collectives of all ranks belong together: their kind,
// unit and length must agree, or the run ends with a message that names both calls. Sums are taken
// in rank order, ((x0 + x1) + x2) + ..., so the bits are the same on every rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "labs/kit/fabric/fabric.hpp"

namespace lab20 {

// Thrown when ranks or sizes do not agree; the driver turns it into a message.
struct Disagreement {
  std::string message;
};

class Group {
 public:
  // A collective, in the order of the calls. All ranks of a run share the log.
  struct Call {
    std::string text;
    int rank = 0;  // the first rank that called it
  };
  using Log = std::vector<Call>;
  // Called at each event: g (a gather is started), w (waited for), r (a reduce-scatter).
  using Note = std::function<void(char event, int unit)>;

  Group(kit::Fabric& fabric, kit::Link& link, Log& log, Note note)
      : fabric_(fabric), link_(link), log_(log), note_(std::move(note)) {}

  [[nodiscard]] int rank() const { return link_.rank(); }
  [[nodiscard]] int world() const { return link_.world(); }

  using Ticket = std::size_t;

  // Starts an all-gather, and returns immediately: until wait(), `all` contains NaN, and `part` and
  // `all` must stay where they are. all.size() == world() * part.size(). unit: for the reports.
  Ticket start_all_gather(int unit, std::span<const float> part, std::span<float> all) {
    enter("g", "all_gather", unit, part.size());
    has("all", all.size(), part.size() * std::size_t(world()));
    std::ranges::fill(all, std::numeric_limits<float>::quiet_NaN());
    gathers_.push_back({unit, part, all});
    return gathers_.size() - 1;
  }
  // Waits for this gather, and for those that were started before it.
  void wait(Ticket ticket) {
    if (ticket >= gathers_.size())
      throw Disagreement{"wait on rank " + std::to_string(rank()) + ": no such ticket"};
    note_('w', gathers_[ticket].unit);
    for (; done_ <= ticket; ++done_) collect(gathers_[done_].part, gathers_[done_].all);
  }
  // Sums data over the ranks; part receives this rank's part of the sum.
  // data.size() == world() * part.size().
  void reduce_scatter(int unit, std::span<const float> data, std::span<float> part) {
    enter("r", "reduce_scatter", unit, part.size());
    has("data", data.size(), part.size() * std::size_t(world()));
    add_up(data, part);
  }

  // The number of gathers that were started and not waited for.
  [[nodiscard]] std::size_t pending() const { return gathers_.size() - done_; }

 private:
  struct Gather {
    int unit;
    std::span<const float> part;
    std::span<float> all;
  };

  void enter(const char* event, const char* kind, int unit, std::size_t part) {
    note_(event[0], unit);
    fabric_.begin(rank(), kind);
    const std::string text = std::string(kind) + " of unit " + std::to_string(unit) +
                             ", parts of " + std::to_string(part) + " floats";
    const std::size_t number = next_++;
    if (number == log_.size()) log_.push_back({text, rank()});
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
  static std::span<T> part_of(std::span<T> all, int rank, std::size_t length) {
    return all.subspan(std::size_t(rank) * length, length);
  }

  void collect(std::span<const float> part, std::span<float> all) {
    std::ranges::copy(part, part_of(all, rank(), part.size()).begin());
    for (int d = 1; d < world(); ++d)
      link_.exchange(after(d), part, before(d), part_of(all, before(d), part.size()));
  }
  void add_up(std::span<const float> data, std::span<float> part) {
    std::vector<float> parts(data.size());
    const std::span<float> in(parts);
    std::ranges::copy(part_of(data, rank(), part.size()), part_of(in, rank(), part.size()).begin());
    for (int d = 1; d < world(); ++d)
      link_.exchange(after(d), part_of(data, after(d), part.size()), before(d),
                     part_of(in, before(d), part.size()));
    for (std::size_t i = 0; i < part.size(); ++i) {
      part[i] = parts[i];
      for (std::size_t r = 1; r < std::size_t(world()); ++r) part[i] += parts[r * part.size() + i];
    }
  }

  kit::Fabric& fabric_;
  kit::Link& link_;
  Log& log_;
  Note note_;
  std::size_t next_ = 0, done_ = 0;
  std::vector<Gather> gathers_;
};

}  // namespace lab20
