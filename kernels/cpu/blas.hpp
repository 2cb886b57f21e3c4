// OpenBLAS, opened at run time: the matrix products of --products openblas, to compare ours with.
//
// Opened with dlopen rather than linked, for the sake of the moment of loading: that is when
// OpenBLAS starts a thread for every core unless OPENBLAS_NUM_THREADS forbids it (here it is told
// 1, unless the user has set it), and only programs that multiply matrices need the library at all.
// It also chooses its kernels then: by the processor, or by OPENBLAS_CORETYPE, which can halve the
// speed (1024^3 sgemm on one Zen 5 core: Haswell 113, SkylakeX 209 GFLOP/s). blas_description()
// says what came of it: look there first when products seem slow.
#pragma once

#include <string>

#include "kernels/cpu/gemm.hpp"

namespace ringsmith::kernels::cpu {

// sgemm through OpenBLAS.
void openblas_sgemm(const Gemm& product);

// "OpenBLAS 0.3.21, Haswell kernels (OPENBLAS_CORETYPE is set)". Loads the library.
[[nodiscard]] std::string blas_description();

}  // namespace ringsmith::kernels::cpu
