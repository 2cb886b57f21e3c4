// Autocast: selects the dtype in which each function computes.
//
//   {
//     const Autocast autocast(DType::bf16);     // PyTorch's `with torch.autocast(..., bfloat16):`
//     loss = cross_entropy(model(x), y);        // products in bf16, the loss in f32
//   }
//   loss.backward();                            // each function in its forward's dtype
//
//   lower    matmul linear conv2d attention attention_qkv              to the guard's dtype
//   f32      softmax log_softmax layer_norm nll_loss cross_entropy     to f32
//            mse_loss exp log pow sum
//   widest   cat                                                       to f32 if dtypes differ
//   others   unchanged: gelu after linear is bf16; add and mul of bf16 and f32 give f32
//
// These are PyTorch's lists for CUDA (aten/src/ATen/autocast_mode.cpp), used on every device so
// that a model's results do not depend on the device. Only f32, f16 and bf16 tensors are cast.
//
// Parameters remain f32. The cast of a parameter is kept and reused until the outermost guard ends,
// unless the parameter, the dtype or the grad mode changes, or a backward pass consumes the cast.
// Casts are differentiable, so gradients arrive in f32. Guards can be nested and apply only to
// their own thread.
//
// A model that knows which parameters it will multiply passes them to lower_all(), and a GPU casts
// them in one launch. Otherwise each cast is a kernel, and most are too short to fill a GPU.
#pragma once

#include <vector>

#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

struct AutocastState {
  bool enabled = false;
  DType dtype = DType::bf16;
};

class Autocast {
 public:
  // Throws UsageError unless dtype is f16 or bf16. With enabled = false nothing is cast inside the
  // guard; use it for a part of a model that must compute in its inputs' dtype.
  explicit Autocast(DType dtype, bool enabled = true);
  explicit Autocast(AutocastState state) : Autocast(state.dtype, state.enabled) {}
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  AutocastState previous_;
};

// State of the calling thread, to be passed to a thread that continues its work.
[[nodiscard]] AutocastState autocast_state();

// ---- for authors of functions: these return the operand in the dtype in which to compute, or the
// operand itself if there is no guard or the operand is undefined ----
namespace autocast {

[[nodiscard]] Tensor lower(const Tensor& t);
// Prepares the casts of these parameters for lower(), on GPUs only. Skips parameters that need no
// cast and those whose cast is kept already.
void lower_all(const std::vector<Tensor>& parameters);
[[nodiscard]] Tensor f32(const Tensor& t);
[[nodiscard]] std::vector<Tensor> widest(const std::vector<Tensor>& tensors);

}  // namespace autocast

}  // namespace ringsmith
