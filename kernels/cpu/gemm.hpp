// The matrix product of the fast kernels: C = op(A) op(B) (+ C, or + bias), row-major float.
//
// kernels::products() (kernels/mode.hpp) selects our own implementation (cpu/fast/gemm.cpp, the
// default) or OpenBLAS (cpu/gemm.cpp).
#pragma once

#include <cstdint>
#include <string>

namespace ringsmith::kernels::cpu {

enum class Transpose : std::uint8_t { no, yes };

// op(A) is m x k, op(B) k x n, C m x n. A leading dimension is the distance between rows of the
// stored matrix in elements, at least its row length and at least 1. With beta = 0, C is not read.
struct Gemm {
  Transpose trans_a = Transpose::no, trans_b = Transpose::no;
  std::int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  std::int64_t lda = 0;
  const float* b = nullptr;
  std::int64_t ldb = 0;
  float beta = 0;               // 0 or 1
  const float* bias = nullptr;  // or n elements, with which each row of C starts (beta must be 0)
  float* c = nullptr;
  std::int64_t ldc = 0;
};
void sgemm(const Gemm& product);

namespace fast {
void gemm(const Gemm& product);
}

// ---- OpenBLAS, opened at run time: the matrix products of --products openblas ----
//
// OpenBLAS is opened with dlopen rather than linked, for two reasons. First, only --products
// openblas needs it. Second, when loaded, it starts a thread for every other processor that the
// loading thread may use; here the loading thread may use only one, so OpenBLAS starts none. On
// loading, OpenBLAS also chooses its kernels by the processor or by OPENBLAS_CORETYPE. The choice
// can halve the speed (1024^3 sgemm on one Zen 5 core: Haswell 113, SkylakeX 209 GFLOP/s).
// blas_description() reports it.
void openblas_sgemm(const Gemm& product);

// Loads the library. Returns e.g. "OpenBLAS 0.3.21, Haswell kernels (OPENBLAS_CORETYPE is set)".
[[nodiscard]] std::string blas_description();

}  // namespace ringsmith::kernels::cpu
