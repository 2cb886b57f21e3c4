// The ladder of matrix products on a device: the same product, faster from rung to rung.
//
//   1  naive         matmul_naive.cu       a thread an element, its row and column from memory
//   2  tiled         matmul_tiled.cu       32 x 32 tiles of both operands through shared memory
//   3  blocked       matmul_blocked.cu     and 8 x 8 sums in the registers of each thread
//   4  vectorised    matmul_vectorised.cu  and packs of 16 bytes, the next slab on its way already
//   5  TF32 cores    matmul_tensor.cu      16 x 16 x 8 products as one instruction of a warp,
//   6  BF16 cores                          operands rounded to 10 or 7 bits
//   7  cuBLASLt      matmul_cublaslt.cu    the vendor's library (devices only)
//   8  pipelined     matmul_pipelined.cu   BF16 cores by ldmatrix and mma, the next slab on its way
//   9  4 stages                            into shared memory meanwhile (cp.async); three of them
//
// kernels::cuda::matmul and linear use cuBLASLt on a device and version 4 on the emulator, or what
// set_matmul_version() says; `kernel_bench matmul --device cuda --rung 3` measures one.
//
// f16 and bf16 are there for mixed precision: cuBLASLt on a device and version 3 on the emulator;
// bf16 by version 8 or 9 if one of them is set. Doubles, for gradient checks, have version 3.
#pragma once

#include <span>

#include "kernels/matmul.hpp"

namespace ringsmith::kernels::cuda {

// c (+)= a b (+ bias in every row), `batches` times: operands of the next one lie so many elements
// further. Any strides; what is unit stride decides the speed.
template <class T>
struct Product {
  Matrix<const T> a, b;
  Matrix<T> c;
  Store store = Store::replace;
  const T* bias = nullptr;  // c.cols elements
  std::int64_t batches = 1, a_batch = 0, b_batch = 0, c_batch = 0;
};

void matmul_naive(const Product<float>& product);
void matmul_tiled(const Product<float>& product);
void matmul_blocked(const Product<float>& product);
void matmul_blocked(const Product<double>& product);
void matmul_blocked(const Product<f16>& product);
void matmul_blocked(const Product<bf16>& product);
void matmul_vectorised(const Product<float>& product);

// Operands are rounded to TF32 or bfloat16, sums kept in float. UsageError on a device without such
// tensor cores (below compute capability 8.0).
void matmul_tensor_tf32(const Product<float>& product);
void matmul_tensor_bf16(const Product<float>& product);
// Devices only. In float, or TF32 if kernels::float32() says so. What the library has no layout for
// (an operand without a unit stride) is done by version 4; of f16 and bf16 by version 3.
void matmul_cublaslt(const Product<float>& product);
void matmul_cublaslt(const Product<f16>& product);
void matmul_cublaslt(const Product<bf16>& product);

enum class PipelineStages : std::uint8_t { two, four };
// Operands rounded to bfloat16, sums in float. UsageError as above.
void matmul_pipelined(const Product<float>& product, PipelineStages stages);
void matmul_pipelined(const Product<bf16>& product, PipelineStages stages);

// UsageError if the current device has no tensor cores for TF32 and BF16.
void require_tensor_cores();
[[nodiscard]] bool has_tensor_cores();

struct MatmulVersion {
  int number;
  const char* name;
  void (*run)(const Product<float>& product);  // null: not on the emulator
};
[[nodiscard]] std::span<const MatmulVersion> matmul_versions();

// Which of them multiplies floats from now on; 0: the best there is. UsageError for a number that
// is not in the list or does not run here.
void set_matmul_version(int number);
[[nodiscard]] int matmul_version();

}  // namespace ringsmith::kernels::cuda
