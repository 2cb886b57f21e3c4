// machine: the litmus tests mp and sb on this computer's processor, with relaxed orders: a million
// times each, or as often as a second allows. The outcomes depend on the processor, and on luck.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kRuns = 1'000'000, kPlaces = 64;
constexpr auto relaxed = std::memory_order_relaxed;

struct alignas(128) Number {
  std::atomic<std::size_t> value{0};
};
using Place = std::atomic<std::size_t>;
using Body = std::size_t (*)(Place& x, Place& y);  // returns what it has read

// Both threads begin each run together. Its two places were reset to zero 32 runs before.
class Test {
 public:
  std::array<std::size_t, 4> outcomes(Body one, Body other) {
    std::thread second([&] { thread(1, other); });
    thread(0, one);
    second.join();
    std::array<std::size_t, 4> seen{};
    for (std::size_t i = 0; i < std::min(done_[0], done_[1]); ++i)
      ++seen[read_[0][i] + read_[1][i]];
    return seen;
  }

 private:
  void thread(std::size_t me, Body body) {
    for (std::size_t i = 0; i < kRuns && met(me, i); ++i) {
      read_[me][i] = body(x_[i % kPlaces].value, y_[i % kPlaces].value);
      (me == 0 ? x_ : y_)[(i + kPlaces / 2) % kPlaces].value.store(0, relaxed);
      done_[me] = i + 1;
    }
  }
  bool met(std::size_t me, std::size_t run) {
    at_[me].value.store(run + 1, std::memory_order_release);
    for (int polls = 1; at_[1 - me].value.load(std::memory_order_acquire) <= run; ++polls)
      if (polls % 4096 == 0 && std::chrono::steady_clock::now() > end_) return false;
    return true;
  }

  std::chrono::steady_clock::time_point end_ =
      std::chrono::steady_clock::now() + std::chrono::seconds(1);
  std::array<Number, kPlaces> x_, y_;
  std::array<Number, 2> at_;  // runs that the thread has begun
  std::array<std::vector<std::size_t>, 2> read_{std::vector<std::size_t>(kRuns),
                                                std::vector<std::size_t>(kRuns)};
  std::array<std::size_t, 2> done_{};
};

void show(const char* name, const std::array<std::size_t, 4>& n) {
  std::printf("%-22s %8zu %8zu %8zu %8zu\n", name, n[0], n[1], n[2], n[3]);
}

}  // namespace

int main() {
  std::printf("                            0 0      0 1      1 0      1 1\n");
  show("mp: flag, data", Test().outcomes(
                             [](Place& x, Place& y) {
                               x.store(1, relaxed);  // the data
                               y.store(1, relaxed);  // the flag
                               return std::size_t{0};
                             },
                             [](Place& x, Place& y) {
                               const std::size_t flag = y.load(relaxed);
                               return 2 * flag + x.load(relaxed);
                             }));
  show("sb: what each sees", Test().outcomes(
                                 [](Place& x, Place& y) {
                                   x.store(1, relaxed);
                                   return 2 * y.load(relaxed);
                                 },
                                 [](Place& x, Place& y) {
                                   y.store(1, relaxed);
                                   return x.load(relaxed);
                                 }));
}
