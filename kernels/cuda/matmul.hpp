// The ladder of matrix products on a device: the same product, faster with each version.
//
//   1  naive         matmul_naive.cu       a thread per element, its row and column from memory
//   2  tiled         matmul_tiled.cu       32 x 32 tiles of both operands through shared memory
//   3  blocked       matmul_blocked.cu     and 8 x 8 sums in the registers of each thread
//   4  vectorised    matmul_vectorised.cu  and packs of 16 bytes, with the next slab in flight
//   5  TF32 cores    matmul_tensor.cu      16 x 16 x 8 (6: x 16) products as one operation of a
//   6  BF16 cores                          warp, operands rounded to 10 (6: 7) bits of mantissa
//   7  cuBLASLt      matmul_cublaslt.cu    the vendor's library (emulated: plain loops)
//   8  pipelined     matmul_pipelined.cu   BF16 cores by ldmatrix and mma, while cp.async copies
//   9  4 stages                            the next slab (9: three) into shared memory
//  10  wgmma         matmul_wgmma.cu       Hopper: one thread copies the slabs (TMA), and tensor
//                                          cores read them in shared memory
//
// kernels::cuda::matmul and linear use cuBLASLt on a device and version 4 on the emulator, unless
// set_matmul_version() selects another version. `kernel_bench matmul --device cuda --rung 3`
// measures version 3.
//
// f16 and bf16, for mixed precision, have versions 3 and 7, and bf16 also has 8 to 10. If another
// version is selected, or on the emulator none, they use version 3. Doubles, for gradient checks,
// always use version 3.
#pragma once

#include <span>

#include "kernels/matmul.hpp"

namespace ringsmith::kernels::cuda {

// c = (or +=) a b (+ bias in every row), `batches` times. The operands of a batch are a_batch,
// b_batch and c_batch elements apart. Any strides are allowed, but unit strides are faster.
template <class T>
struct Product {
  Matrix<const T> a, b;
  Matrix<T> c;
  Store store = Store::replace;
  const T* bias = nullptr;  // c.cols elements
  T* row_sums = nullptr;    // receives the sums of a's rows; version 7 only, without a bias
  std::int64_t batches = 1, a_batch = 0, b_batch = 0, c_batch = 0;
};

void matmul_naive(const Product<float>& product);
void matmul_tiled(const Product<float>& product);
void matmul_blocked(const Product<float>& product);
void matmul_blocked(const Product<double>& product);
void matmul_blocked(const Product<f16>& product);
void matmul_blocked(const Product<bf16>& product);
void matmul_vectorised(const Product<float>& product);

// Operands are rounded to TF32 or bfloat16, sums are floats. Throws UsageError on a device without
// tensor cores for these types (below compute capability 8.0).
void matmul_tensor_tf32(const Product<float>& product);
void matmul_tensor_bf16(const Product<float>& product);
// Floats are multiplied in float, or in TF32 if kernels::float32() says so. If the library does not
// support a product, has no layout for a matrix (e.g. it has no unit stride), or k is 0, floats
// fall back to version 4, bf16 to version 9 (without tensor cores 3), and f16 to version 3.
void matmul_cublaslt(const Product<float>& product);
void matmul_cublaslt(const Product<f16>& product);
void matmul_cublaslt(const Product<bf16>& product);
// GELU (tanh's form) or its slope, computed with a product.
template <class T>
struct GeluEpilogue {
  T* of = nullptr;              // receives the sums with their bias, and c receives GELU of these
  const T* slope_at = nullptr;  // c is the product times the slope of GELU at these elements
};
// For f16 and bf16. False if the library does not support the product, e.g. because the length of
// c's rows is no multiple of 8.
template <class T>
[[nodiscard]] bool matmul_cublaslt_gelu(const Product<T>& product, const GeluEpilogue<T>& gelu);

enum class PipelineStages : std::uint8_t { two, four };
// Operands are rounded to bfloat16, sums are floats. Throws UsageError like matmul_tensor_tf32().
void matmul_pipelined(const Product<float>& product, PipelineStages stages);
void matmul_pipelined(const Product<bf16>& product, PipelineStages stages);

// Operands are rounded to bfloat16, sums are floats. Throws UsageError unless the device's compute
// capability is 9.0 (Hopper) and the program was compiled for sm_90a, too.
void matmul_wgmma(const Product<float>& product);
void matmul_wgmma(const Product<bf16>& product);

void require_tensor_cores();
[[nodiscard]] bool has_tensor_cores();
void require_wgmma();
[[nodiscard]] bool has_wgmma();

struct MatmulVersion {
  int number;
  const char* name;
  void (*run)(const Product<float>& product);
  bool (*available)();  // on the current device
};
[[nodiscard]] std::span<const MatmulVersion> matmul_versions();

// Selects the version that multiplies floats and bf16. 0 selects the best one available. Throws
// UsageError if the number is not in the list.
void set_matmul_version(int number);
[[nodiscard]] int matmul_version();

}  // namespace ringsmith::kernels::cuda
