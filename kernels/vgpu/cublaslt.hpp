// How the emulated cuBLASLt answers when it is asked for an algorithm. A library on a device may
// give each of these answers for a product that it does not support.
#pragma once

#include <cstdint>

namespace vgpu {

enum class CublasLtAnswer : std::uint8_t {
  algorithm,
  none,              // no algorithm, without an error
  not_supported,     // CUBLAS_STATUS_NOT_SUPPORTED
  failed_algorithm,  // an algorithm whose state is CUBLAS_STATUS_NOT_SUPPORTED
  late,              // an algorithm for which cublasLtMatmul returns CUBLAS_STATUS_NOT_SUPPORTED
};

void set_cublaslt_answer(CublasLtAnswer answer);

// Calls so far: of cublasLtMatmulAlgoGetHeuristic, and of cublasLtMatmul by result.
struct CublasLtCalls {
  std::uint64_t heuristics, products, refused_products;
};
CublasLtCalls cublaslt_calls();

}  // namespace vgpu
