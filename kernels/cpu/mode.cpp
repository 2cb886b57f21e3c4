#include "kernels/mode.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <string>

#include "kernels/cpu/fast/matmul_bf16.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith::kernels {

namespace {
std::atomic<Mode> current_mode{Mode::fast};
std::atomic<int> current_threads{1};
std::atomic<Products> current_products{Products::own};
std::atomic<Float32> current_float32{Float32::strict};
}  // namespace

Mode mode() { return current_mode.load(std::memory_order_relaxed); }
void set_mode(Mode m) { current_mode.store(m, std::memory_order_relaxed); }

Mode parse_mode(std::string_view name) {
  if (name == "fast") return Mode::fast;
  if (name == "oracle") return Mode::oracle;
  throw UsageError("unknown kernels '" + std::string(name) + "': use fast or oracle");
}

std::string_view instruction_set() {
#if defined(__AVX512F__)
  return "AVX-512";
#elif defined(__AVX2__)
  return "AVX2";
#elif defined(__x86_64__)
  return "SSE2";
#elif defined(__aarch64__)
  return "NEON";
#else
  return "none";
#endif
}

Products products() { return current_products.load(std::memory_order_relaxed); }
void set_products(Products p) { current_products.store(p, std::memory_order_relaxed); }

Products parse_products(std::string_view name) {
  if (name == "own") return Products::own;
  if (name == "openblas") return Products::openblas;
  throw UsageError("unknown products '" + std::string(name) + "': use own or openblas");
}

namespace {
constexpr std::array kAllBf16{Bf16Products::widened, Bf16Products::avx512_bf16,
                              Bf16Products::amx_bf16};
std::atomic<Bf16Products>& current_bf16() {
  static std::atomic<Bf16Products> current{bf16_products_here().back()};
  return current;
}
}  // namespace

Bf16Products bf16_products() { return current_bf16().load(std::memory_order_relaxed); }

void set_bf16_products(Bf16Products p) {
  require(cpu::fast::processor_has(p), "this processor or its Linux kernel does not support " +
                                           std::string(name_of(p)) + ": use auto or widened");
  current_bf16().store(p, std::memory_order_relaxed);
}

std::vector<Bf16Products> bf16_products_here() {
  std::vector<Bf16Products> found;
  for (const Bf16Products p : kAllBf16)
    if (cpu::fast::processor_has(p)) found.push_back(p);
  return found;
}

std::string_view name_of(Bf16Products p) {
  constexpr std::array<std::string_view, kAllBf16.size()> kNames{"widened", "avx512_bf16",
                                                                 "amx_bf16"};
  return kNames.at(static_cast<std::size_t>(p));
}

Bf16Products parse_bf16_products(std::string_view name) {
  if (name == "auto") return bf16_products_here().back();
  for (const Bf16Products p : kAllBf16)
    if (name == name_of(p)) return p;
  throw UsageError("unknown bf16 products '" + std::string(name) +
                   "': use auto, widened, avx512_bf16 or amx_bf16");
}

Float32 float32() { return current_float32.load(std::memory_order_relaxed); }
void set_float32(Float32 p) { current_float32.store(p, std::memory_order_relaxed); }

Float32 parse_float32(std::string_view name) {
  if (name == "strict") return Float32::strict;
  if (name == "tf32") return Float32::tf32;
  throw UsageError("unknown float32 '" + std::string(name) + "': use strict or tf32");
}

int threads() { return current_threads.load(std::memory_order_relaxed); }

void set_threads(int n) {
  require(n >= 1 && n <= 256, "threads must be between 1 and 256, got " + std::to_string(n));
  current_threads.store(n, std::memory_order_relaxed);
}

}  // namespace ringsmith::kernels
