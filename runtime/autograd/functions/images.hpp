// What the functions on images have in common: dtype dispatch and their complaints.
#pragma once

#include <string>

#include "runtime/tensor/tensor.hpp"

namespace ringsmith::detail {

// Calls f(TypeTag<float>) or f(TypeTag<double>); UsageError naming the function for another dtype.
template <class F>
void visit_float(const char* function, DType dtype, const F& f) {
  if (dtype == DType::f32) return f(TypeTag<float>{});
  if (dtype == DType::f64) return f(TypeTag<double>{});
  throw UsageError(std::string(function) + ": dtype " + std::string(name_of(dtype)) +
                   ", expected f32 or f64");
}

inline void require_dims(const char* function, const char* what, const Tensor& t, int dims,
                         const char* meaning) {
  require(t.defined() && t.dim() == dims,
          std::string(function) + ": " + what + " must be " + meaning + ", got " +
              (t.defined() ? to_string(t.sizes()) : std::string("nothing")));
}

}  // namespace ringsmith::detail
