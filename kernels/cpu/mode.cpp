#include "kernels/mode.hpp"

#include <atomic>
#include <string>

#include "runtime/base/error.hpp"

namespace ringsmith::kernels {

namespace {
std::atomic<Mode> current_mode{Mode::fast};
std::atomic<int> current_threads{1};
std::atomic<Products> current_products{Products::own};
}  // namespace

Mode mode() { return current_mode.load(std::memory_order_relaxed); }
void set_mode(Mode m) { current_mode.store(m, std::memory_order_relaxed); }

Mode parse_mode(std::string_view name) {
  if (name == "fast") return Mode::fast;
  if (name == "oracle") return Mode::oracle;
  throw UsageError("unknown kernels '" + std::string(name) + "': use fast or oracle");
}

Products products() { return current_products.load(std::memory_order_relaxed); }
void set_products(Products p) { current_products.store(p, std::memory_order_relaxed); }

Products parse_products(std::string_view name) {
  if (name == "own") return Products::own;
  if (name == "openblas") return Products::openblas;
  throw UsageError("unknown products '" + std::string(name) + "': use own or openblas");
}

int threads() { return current_threads.load(std::memory_order_relaxed); }

void set_threads(int n) {
  require(n >= 1 && n <= 256, "threads must be between 1 and 256, got " + std::to_string(n));
  current_threads.store(n, std::memory_order_relaxed);
}

}  // namespace ringsmith::kernels
