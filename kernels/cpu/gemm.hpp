// The one matrix product of the fast kernels: C = op(A) op(B) (+ C, or + bias), row-major float.
//
// Two implementations, chosen by kernels::products() (kernels/mode.hpp): our own
// (cpu/fast/gemm.cpp), the default, and OpenBLAS (cpu/blas.cpp) to compare it with.
#pragma once

#include <cstdint>

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

}  // namespace ringsmith::kernels::cpu
