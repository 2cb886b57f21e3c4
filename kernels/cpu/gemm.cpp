#include "kernels/cpu/gemm.hpp"

#include "kernels/cpu/blas.hpp"
#include "kernels/mode.hpp"

namespace ringsmith::kernels::cpu {

void sgemm(const Gemm& product) {
  products() == Products::own ? fast::gemm(product) : openblas_sgemm(product);
}

}  // namespace ringsmith::kernels::cpu
