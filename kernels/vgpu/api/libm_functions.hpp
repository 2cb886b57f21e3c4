// The functions of <math.h> that no standard rounds correctly. sqrt, fma and the like are exact on
// every machine.
#pragma once

// clang-format off
#define VGPU_LIBM_UNARY(X) \
  X(exp) X(exp2) X(expm1) X(log) X(log2) X(log10) X(log1p) X(sin) X(cos) X(tan) X(asin) X(acos)    \
  X(atan) X(sinh) X(cosh) X(tanh) X(asinh) X(acosh) X(atanh) X(erf) X(erfc) X(cbrt) X(tgamma)      \
  X(lgamma)
#define VGPU_LIBM_BINARY(X) X(pow) X(atan2) X(hypot)
// clang-format on
