// OpenBLAS, opened at run time, for the matrix products of the fast kernels.
//
// Opened with dlopen rather than linked, because OpenBLAS chooses its kernels while it is being
// loaded. The version in Debian 12 (0.3.21) does not recognise AMD processors with AVX-512 and
// falls back to AVX2: half the speed (1024^3 sgemm on one Zen 5 core: 113 against 209 GFLOP/s). So
// on such a processor OPENBLAS_CORETYPE=SkylakeX is put into the environment for the moment of
// loading, unless the user has set that variable: then theirs decides. blas_description() says what
// came of it. No threads are started beyond kernels::threads().
#pragma once

#include <cstdint>
#include <string>

namespace ringsmith::kernels::cpu {

// How op(X) reads the stored row-major matrix X.
enum class Transpose : std::uint8_t { no, yes };

// C (m x n) = alpha op(A) (m x k) op(B) (k x n) + beta C, all row-major with leading dimensions
// (elements from row to row of the stored matrix). With beta = 0, C is not read.
struct Gemm {
  Transpose trans_a = Transpose::no, trans_b = Transpose::no;
  std::int64_t m = 0, n = 0, k = 0;
  float alpha = 1;
  const float* a = nullptr;
  std::int64_t lda = 0;
  const float* b = nullptr;
  std::int64_t ldb = 0;
  float beta = 0;
  float* c = nullptr;
  std::int64_t ldc = 0;
};
void sgemm(const Gemm& product);

// "OpenBLAS 0.3.21, SkylakeX kernels (chosen by ringsmith: ...)". Loads the library.
[[nodiscard]] std::string blas_description();

}  // namespace ringsmith::kernels::cpu
