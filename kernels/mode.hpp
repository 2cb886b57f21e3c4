// Which CPU kernels run: the fast ones, or the slow obvious oracles that they are compared with.
//
// A family X is declared in kernels/X.hpp (namespace kernels::cpu); its oracle and the choice
// between the two live in kernels/cpu/X.cpp, the fast version in kernels/cpu/fast/X.cpp. Oracles
// are plain loops without contraction, with the summation orders of PyTorch's scalar build, so that
// whole training runs can be compared with it bit for bit.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace ringsmith::kernels {

enum class Mode : std::uint8_t { fast, oracle };

[[nodiscard]] Mode mode();
void set_mode(Mode mode);
Mode parse_mode(std::string_view name);  // "fast" | "oracle", else UsageError

// That the fast kernels were compiled for: "AVX-512", "AVX2", "SSE2", "NEON" or "none". The order
// of their sums depends on it.
[[nodiscard]] std::string_view instruction_set();

// Whose matrix products the fast kernels use: our own, or OpenBLAS's to compare with.
enum class Products : std::uint8_t { own, openblas };

[[nodiscard]] Products products();
void set_products(Products products);
Products parse_products(std::string_view name);  // "own" | "openblas", else UsageError

// How the fast kernels of the CPU multiply matrices of bf16: widened to floats, with the same bits
// on every processor, or by instructions for them (cpu/fast/matmul_bf16.hpp). Unless it is set, the
// last of these that the processor has.
enum class Bf16Products : std::uint8_t { widened, avx512_bf16, amx_bf16 };

[[nodiscard]] Bf16Products bf16_products();
void set_bf16_products(Bf16Products products);  // UsageError if the processor does not have it
[[nodiscard]] std::vector<Bf16Products> bf16_products_here();  // those that it has
[[nodiscard]] std::string_view name_of(Bf16Products products);
// By name, or "auto": what is used unless something is set. Else UsageError.
Bf16Products parse_bf16_products(std::string_view name);

// How a device multiplies matrices of floats: with all 24 bits, or the operands rounded to 11 on
// their way into tensor cores (NVIDIA, from compute capability 8.0 on; nothing else changes).
enum class Float32 : std::uint8_t { strict, tf32 };

[[nodiscard]] Float32 float32();
void set_float32(Float32 precision);
Float32 parse_float32(std::string_view name);  // "strict" | "tf32", else UsageError

// Threads used by fast kernels (BLAS included). Default 1: one rank, one core.
[[nodiscard]] int threads();
void set_threads(int n);  // 1..256, else UsageError

}  // namespace ringsmith::kernels
