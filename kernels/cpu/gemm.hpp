// The one matrix product of the fast kernels: C = op(A) op(B) (+ C, or + bias), row-major float.
//
// Two implementations, chosen by kernels::products() (kernels/mode.hpp): our own
// (cpu/fast/gemm.cpp), the default, and OpenBLAS (cpu/gemm.cpp) to compare it with.
#pragma once

#include <cstdint>
#include <string>

namespace ringsmith::kernels::cpu {

// How op(X) reads the stored row-major matrix X.
enum class Transpose : std::uint8_t { no, yes };

// op(A) is m x k, op(B) k x n, C m x n; leading dimensions are the elements from row to row of the
// stored matrix, at least its row length and at least 1. With beta = 0, C is not read.
struct Gemm {
  Transpose trans_a = Transpose::no, trans_b = Transpose::no;
  std::int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  std::int64_t lda = 0;
  const float* b = nullptr;
  std::int64_t ldb = 0;
  float beta = 0;               // 0 or 1
  const float* bias = nullptr;  // n elements that every row of C begins with; beta is 0 then
  float* c = nullptr;
  std::int64_t ldc = 0;
};
void sgemm(const Gemm& product);

namespace fast {
void gemm(const Gemm& product);
}

// ---- OpenBLAS, opened at run time: the matrix products of --products openblas ----
//
// Opened with dlopen rather than linked, for the sake of the moment of loading: that is when
// OpenBLAS starts a thread for every processor that it may use (here a single one, so that there is
// none to start), and only programs that multiply matrices need the library at all.
// It also chooses its kernels then: by the processor, or by OPENBLAS_CORETYPE, which can halve the
// speed (1024^3 sgemm on one Zen 5 core: Haswell 113, SkylakeX 209 GFLOP/s). blas_description()
// says what came of it: look there first when products seem slow.
void openblas_sgemm(const Gemm& product);

// "OpenBLAS 0.3.21, Haswell kernels (OPENBLAS_CORETYPE is set)". Loads the library.
[[nodiscard]] std::string blas_description();

}  // namespace ringsmith::kernels::cpu
