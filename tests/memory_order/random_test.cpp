// The explorer against the axioms (oracle.hpp): random programs of two to four threads have the
// same outcomes, each in the same number of executions. So nothing is left out, and nothing is
// found twice.
#include <random>

#include "labs/kit/explorer/atomic.hpp"
#include "tests/memory_order/oracle.hpp"
#include "tests/support/catch.hpp"

using namespace explorer;
using oracle::Litmus;
using oracle::Operation;
using oracle::What;

namespace {

struct Shape {
  int threads, most, in_all;  // operations of a thread, of all
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

Result run(const Litmus& litmus) {
  return explore([&] {
    struct State {
      atomic<int> x{"x", 0}, y{"y", 0};
      std::vector<std::vector<int>> seen;
      atomic<int>& at(int place) { return place == 0 ? x : y; }
    };
    const auto s = std::make_shared<State>();
    s->seen.resize(litmus.size());
    Program program;
    for (std::size_t t = 0; t < litmus.size(); ++t)
      program.threads.push_back(
          {"thread " + std::to_string(t), [s, t, &thread = litmus[t]] {
             for (const Operation& op : thread) {
               int zero = 0;
               if (op.what == What::load)  // not atomic::load: again and again would be a wait
                 s->seen[t].push_back(from_value<int>(load(s->at(op.place).key(), op.order)));
               if (op.what == What::store) s->at(op.place).store(op.value, op.order);
               if (op.what == What::add)
                 s->seen[t].push_back(s->at(op.place).fetch_add(op.value, op.order));
               if (op.what == What::swap_if_zero) {
                 s->at(op.place).compare_exchange_strong(zero, op.value, op.order, relaxed);
                 s->seen[t].push_back(zero);
               }
               if (op.what == What::fence) fence(op.order);
             }
           }});
    program.after = [s] { outcome(oracle::text_of(s->seen, {s->x.load(), s->y.load()})); };
    return program;
  });
}

std::string described(const Litmus& litmus) {
  constexpr const char* kOrders[] = {"rlx", "acq", "rel", "acq_rel", "sc"};
  constexpr const char* kWhats[] = {"load", "store", "add", "swap_if_zero", "fence"};
  std::string text;
  for (const auto& thread : litmus) {
    for (const Operation& op : thread)
      text += std::string(kWhats[int(op.what)]) + " " + "xy"[op.place] + " " +
              kOrders[int(op.order)] + " " + std::to_string(op.value) + "; ";
    text += "\n";
  }
  return text;
}

void compare(unsigned seed, int programs, const Shape& shape) {
  Generator generator(seed);
  std::uint64_t executions = 0;
  for (int i = 0; i < programs; ++i) {
    const Litmus litmus = generator.next(shape);
    const Result found = run(litmus);
    CAPTURE(i, described(litmus), found.failure);
    REQUIRE(found.complete);
    REQUIRE(found.outcomes == oracle::outcomes(litmus));
    executions += found.executions;
  }
  WARN(programs << " programs of " << shape.threads << " threads: " << executions
                << " executions, each found once");
}

}  // namespace

TEST_CASE("random programs have the executions that RC11's axioms allow", "[random]") {
  compare(1, 1500, {2, 4, 6, true});
  compare(2, 800, {3, 3, 6, true});
  compare(3, 800, {3, 3, 7, false});
  compare(4, 400, {4, 2, 7, true});
}
