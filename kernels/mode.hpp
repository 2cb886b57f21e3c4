// Selects the CPU kernels: the fast ones, or the slow, simple oracles with which they are compared.
//
// A family X is declared in kernels/X.hpp (namespace kernels::cpu). kernels/cpu/X.cpp contains its
// oracle and the choice between the versions, kernels/cpu/fast/X.cpp the fast version. Oracles are
// plain loops, compiled without floating-point contraction, that add in the order of PyTorch's
// scalar build, so that whole training runs can be compared with PyTorch bit for bit.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace ringsmith::kernels {

enum class Mode : std::uint8_t { fast, oracle };

[[nodiscard]] Mode mode();
void set_mode(Mode mode);
Mode parse_mode(std::string_view name);  // "fast" | "oracle", else UsageError

// Returns the instruction set that the fast kernels were compiled for: "AVX-512", "AVX2", "SSE2",
// "NEON" or "none". Their bits depend on it, because SSE2 has no fused multiply-adds.
[[nodiscard]] std::string_view instruction_set();

// The matrix products of the fast kernels: our own, or OpenBLAS for comparison.
enum class Products : std::uint8_t { own, openblas };

[[nodiscard]] Products products();
void set_products(Products products);
Products parse_products(std::string_view name);  // "own" | "openblas", else UsageError

// How the fast CPU kernels multiply bf16 matrices: widened to float, with the same bits on every
// processor, or with bf16 instructions (cpu/fast/matmul_bf16.hpp). The default is the last of these
// that the processor supports.
enum class Bf16Products : std::uint8_t { widened, avx512_bf16, amx_bf16 };

[[nodiscard]] Bf16Products bf16_products();
void set_bf16_products(Bf16Products products);  // throws UsageError if the processor lacks it
[[nodiscard]] std::vector<Bf16Products> bf16_products_here();  // those that the processor supports
[[nodiscard]] std::string_view name_of(Bf16Products products);
// Parses a name, or "auto" for the default. Throws UsageError for any other name.
Bf16Products parse_bf16_products(std::string_view name);

// How a device multiplies float matrices: with all 24 bits, or with operands rounded to 11 bits for
// the tensor cores (NVIDIA, from compute capability 8.0). No other operation is affected.
enum class Float32 : std::uint8_t { strict, tf32 };

[[nodiscard]] Float32 float32();
void set_float32(Float32 precision);
Float32 parse_float32(std::string_view name);  // "strict" | "tf32", else UsageError

// The number of threads of the fast kernels and of OpenBLAS. The default is 1: one core per rank.
[[nodiscard]] int threads();
void set_threads(int n);  // 1..256, else UsageError

}  // namespace ringsmith::kernels
