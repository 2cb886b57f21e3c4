// Compares the explorer with the axioms (oracle.hpp). Random programs of two to four threads must
// have the same outcomes, each in the same number of executions. So the explorer neither omits nor
// repeats an execution.
#include <cstdio>
#include <random>

#include "tests/memory_order/oracle.hpp"
#include "tests/support/catch.hpp"

using namespace explorer;
using oracle::Litmus;
using oracle::Operation;
using oracle::What;

namespace {

struct Shape {
  int threads, most, in_all;  // most: operations of one thread; in_all: of all threads
  bool fences;
};

class Generator {
 public:
  explicit Generator(unsigned seed) : bits_(seed) {}
  Litmus next(const Shape& shape) {
    Litmus litmus(std::size_t(shape.threads));
    int left = shape.in_all, value = 1;
    for (auto& thread : litmus)
      for (int n = 1 + below(shape.most); n > 0 && left > 0; --n, --left)
        thread.push_back(operation(shape.fences, value));
    return litmus;
  }

 private:
  int below(int n) { return int(bits_() % unsigned(n)); }
  Operation operation(bool fences, int& value) {
    constexpr Order kLoads[] = {relaxed, acquire, seq_cst}, kStores[] = {relaxed, release, seq_cst};
    constexpr Order kAll[] = {relaxed, acquire, release, acq_rel, seq_cst};
    constexpr Order kFences[] = {acquire, release, acq_rel, seq_cst, seq_cst};
    const int place = below(2);
    switch (below(fences ? 10 : 8)) {
      case 0:
      case 1:
      case 2:
        return {What::load, place, kLoads[below(3)], 0};
      case 3:
      case 4:
      case 5:
        return {What::store, place, kStores[below(3)], value++};
      case 6:
        return {What::add, place, kAll[below(5)], 1};
      case 7:
        return {What::swap_if_zero, place, kAll[below(5)], value++};
      default:
        return {What::fence, 0, kFences[below(5)], 0};
    }
  }
  std::mt19937 bits_;
};

void compare(unsigned seed, int programs, const Shape& shape) {
  Generator generator(seed);
  std::uint64_t executions = 0;
  for (int i = 0; i < programs; ++i) {
    const Litmus litmus = generator.next(shape);
    const Result found = oracle::explored(litmus);
    CAPTURE(i, oracle::described(litmus), found.failure);
    REQUIRE(found.complete);
    REQUIRE(found.outcomes == oracle::outcomes(litmus));
    executions += found.executions;
  }
  std::printf("%d programs of %d threads: %llu executions, each found once\n", programs,
              shape.threads, static_cast<unsigned long long>(executions));
}

}  // namespace

TEST_CASE("random programs have the executions that RC11's axioms allow", "[random]") {
  compare(1, 1500, {2, 4, 6, true});
  compare(2, 800, {3, 3, 6, true});
  compare(3, 800, {3, 3, 7, false});
  compare(4, 400, {4, 2, 7, true});
}
