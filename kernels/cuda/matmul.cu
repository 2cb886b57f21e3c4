// kernels::cuda::matmul and linear choose the version of the ladder. column_sum is a fold.
#include <array>
#include <atomic>
#include <string>
#include <type_traits>

#include "kernels/cuda/fold.cuh"
#include "kernels/cuda/matmul.hpp"
#include "kernels/elementwise.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith::kernels::cuda {

namespace {

#ifdef RINGSMITH_VGPU
constexpr int kBest = 4;  // our own, because the emulated cuBLASLt has none of NVIDIA's algorithms
#else
constexpr int kBest = 7;
#endif

// Converting to the pointer type selects the overload for float.
void (*const kBlocked)(const Product<float>&) = matmul_blocked;
void (*const kLibrary)(const Product<float>&) = matmul_cublaslt;
void (*const kWgmma)(const Product<float>&) = matmul_wgmma;
bool always() { return true; }
template <PipelineStages stages, class T>
void pipelined(const Product<T>& p) {
  matmul_pipelined(p, stages);
}

const std::array kVersions{
    MatmulVersion{1, "naive", matmul_naive, always},
    MatmulVersion{2, "tiled", matmul_tiled, always},
    MatmulVersion{3, "blocked", kBlocked, always},
    MatmulVersion{4, "vectorised", matmul_vectorised, always},
    MatmulVersion{5, "TF32 cores", matmul_tensor_tf32, has_tensor_cores},
    MatmulVersion{6, "BF16 cores", matmul_tensor_bf16, has_tensor_cores},
    MatmulVersion{7, "cuBLASLt", kLibrary, always},
    MatmulVersion{8, "pipelined BF16 cores", pipelined<PipelineStages::two, float>,
                  has_tensor_cores},
    MatmulVersion{9, "BF16 cores, 4 stages", pipelined<PipelineStages::four, float>,
                  has_tensor_cores},
    MatmulVersion{10, "wgmma BF16 cores", kWgmma, has_wgmma},
};

std::atomic<int> chosen{0};

void multiply(const Product<float>& p) {
  kVersions[static_cast<std::size_t>(matmul_version()) - 1].run(p);
}
void multiply(const Product<double>& p) { matmul_blocked(p); }
template <class Half>
void multiply(const Product<Half>& p) {
  const int number = matmul_version();
  if constexpr (std::is_same_v<Half, bf16>) {
    if (number == 8) return pipelined<PipelineStages::two>(p);
    if (number == 9) return pipelined<PipelineStages::four>(p);
    if (number == 10) return matmul_wgmma(p);
  }
  number == 7 ? matmul_cublaslt(p) : matmul_blocked(p);
}

}  // namespace

std::span<const MatmulVersion> matmul_versions() { return kVersions; }

bool has_tensor_cores() {
  int device = 0, major = 0;
  cuda_check(cudaGetDevice(&device));
  cuda_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return major >= 8;
}

void require_tensor_cores() {
  require(has_tensor_cores(),
          "matmul on TF32 or BF16 tensor cores needs compute capability 8.0 or higher: "
          "use version 4 or 7");
}

void set_matmul_version(int number) {
  require(number >= 0 && number <= std::ssize(kVersions),
          "matmul version " + std::to_string(number) + " does not exist: use 1 to " +
              std::to_string(kVersions.size()) + ", or 0 for the best");
  chosen.store(number, std::memory_order_relaxed);
}
int matmul_version() {
  const int number = chosen.load(std::memory_order_relaxed);
  return number == 0 ? kBest : number;
}

template <class T>
void matmul(Matrix<const T> a, Matrix<const T> b, Matrix<T> c, Store store) {
  multiply(Product<T>{.a = a, .b = b, .c = c, .store = store});
}

template <class T>
void matmul_batch(Matrix<const T> a, Matrix<const T> b, Matrix<T> c, const Batch& batch,
                  Store store) {
  multiply(Product<T>{.a = a,
                      .b = b,
                      .c = c,
                      .store = store,
                      .batches = batch.count,
                      .a_batch = batch.a,
                      .b_batch = batch.b,
                      .c_batch = batch.c});
}

template <class T>
void linear(Matrix<const T> x, Matrix<const T> w, std::span<const T> bias, Matrix<T> y) {
  multiply(Product<T>{.a = x, .b = w.t(), .c = y, .bias = bias.empty() ? nullptr : bias.data()});
}

template <class T>
void column_sum(Matrix<const T> x, std::span<T> sums, Store store) {
  const auto kept = one_run<2>(x.cols, {1, x.col_stride});
  const auto folded = one_run<1>(x.rows, {x.row_stride});
  fold_nest(SumInto<T>{{}, x.data, sums.data(), store == Store::add}, kept, folded,
            folds_in_packs(x.data, kept, folded));
}

bool uses_cublaslt() { return matmul_version() == 7; }

template <class T>
void weight_gradients(Matrix<const T> dy, Matrix<const T> x, Matrix<T> dw, std::span<T> db,
                      Store store) {
  Product<T> p{.a = dy.t(), .b = x, .c = dw, .store = store};
  if (uses_cublaslt())
    p.row_sums = db.data();
  else
    column_sum<T>(dy, db, Store::replace);
  multiply(p);
}

namespace {

template <class T>
View<T> whole(const Matrix<T>& m) {  // contiguous
  return {m.data, {1, {m.rows * m.cols}, {1}}};
}

}  // namespace

template <class T>
void linear_gelu(Matrix<const T> x, Matrix<const T> w, std::span<const T> bias, Matrix<T> argument,
                 Matrix<T> y) {
  const T* const offsets = bias.empty() ? nullptr : bias.data();
  const Product<T> product{.a = x, .b = w.t(), .c = y, .bias = offsets};
  if (uses_cublaslt() && matmul_cublaslt_gelu(product, {.of = argument.data})) return;
  linear<T>(x, w, bias, argument);
  unary<T>(Unary::gelu_tanh, whole(y), whole(Matrix<const T>(argument)));
}

template <class T>
void gelu_gradient(Matrix<const T> dy, Matrix<const T> w, Matrix<const T> argument, Matrix<T> dx) {
  const Product<T> product{.a = dy, .b = w, .c = dx};
  if (uses_cublaslt() && matmul_cublaslt_gelu(product, {.slope_at = argument.data})) return;
  matmul<T>(dy, w, dx, Store::replace);
  binary<T>(Binary::gelu_tanh_backward, whole(dx), whole(Matrix<const T>(dx)), whole(argument));
}

RINGSMITH_FLOAT_AND_DOUBLE(matmul)
RINGSMITH_FLOAT_AND_DOUBLE(matmul_batch)
RINGSMITH_FLOAT_AND_DOUBLE(linear)
RINGSMITH_FLOAT_AND_DOUBLE(column_sum)
template decltype(matmul<f16>) matmul<f16>;
template decltype(matmul<bf16>) matmul<bf16>;
template decltype(linear<f16>) linear<f16>;
template decltype(linear<bf16>) linear<bf16>;
RINGSMITH_HALVES(weight_gradients)
RINGSMITH_HALVES(linear_gelu)
RINGSMITH_HALVES(gelu_gradient)
RINGSMITH_HALVES(column_sum)

}  // namespace ringsmith::kernels::cuda
