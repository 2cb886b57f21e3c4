// Unusual and correct: one function counts messages, bytes moved and bytes added, as whole numbers,
// for all three algorithms; another one prices them.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace lab05 {

struct Machine {
  double alpha = 0;
  double beta = 0;
  double gamma = 0;
};
struct Job {
  int world = 1;
  std::size_t count = 0;
  std::size_t element = 4;
};
enum class Algorithm { flat, tree, ring };
struct Sample {
  double bytes = 0;
  double seconds = 0;
};

struct Bill {
  std::uint64_t messages = 0, moved = 0, added = 0;
};
inline double price(const Machine& m, const Bill& bill) {
  return double(bill.messages) * m.alpha + double(bill.moved) * m.beta +
         double(bill.added) * m.gamma;
}

inline double message_time(const Machine& m, double bytes) { return bytes * m.beta + m.alpha; }
inline int tree_rounds(int world) { return std::bit_width(unsigned(world - 1)); }

inline Bill bill_of(Algorithm which, const Job& job) {
  const std::uint64_t n = std::uint64_t(job.world);
  const std::uint64_t hops =
      which == Algorithm::tree ? std::uint64_t(tree_rounds(job.world)) : n - 1;
  const std::uint64_t elements =
      which == Algorithm::ring ? job.count / n + (job.count % n != 0) : job.count;
  const std::uint64_t size = elements * job.element;
  return {2 * hops, 2 * hops * size, hops * size};
}
inline double flat_time(const Machine& m, const Job& job) {
  return price(m, bill_of(Algorithm::flat, job));
}
inline double tree_time(const Machine& m, const Job& job) {
  return price(m, bill_of(Algorithm::tree, job));
}
inline double ring_time(const Machine& m, const Job& job) {
  return price(m, bill_of(Algorithm::ring, job));
}
inline Algorithm cheapest(const Machine& m, const Job& job) {
  Algorithm best = Algorithm::flat;
  for (const Algorithm other : std::array{Algorithm::tree, Algorithm::ring})
    if (price(m, bill_of(other, job)) < price(m, bill_of(best, job))) best = other;
  return best;
}
inline double crossover_bytes(const Machine& m, int world) {
  const double steps = world - 1, rounds = tree_rounds(world);
  if (steps <= rounds || m.alpha == 0) return 0;
  const double saving = (rounds - steps / world) * (2 * m.beta + m.gamma);
  return saving == 0 ? std::numeric_limits<double>::infinity()
                     : 2 * (steps - rounds) * m.alpha / saving;
}
inline double least_time(const Machine& m, const Job& job) {
  return 2 * m.beta * double(job.count * job.element) * (1 - 1.0 / job.world);
}
inline Machine fit(std::span<const Sample> samples) {
  // Solves the normal equations by Cramer's rule, on long doubles.
  long double a = 0, b = 0, d = 0, p = 0, q = 0;
  for (const Sample& s : samples) {
    const long double x = 1.0L / s.seconds, y = s.bytes * x;
    a += x * x;
    b += x * y;
    d += y * y;
    p += x;
    q += y;
  }
  const long double det = a * d - b * b;
  return {double((p * d - q * b) / det), double((a * q - b * p) / det), 0};
}

}  // namespace lab05
