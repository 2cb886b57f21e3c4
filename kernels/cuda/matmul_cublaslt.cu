// Matrix product, version 7: cuBLASLt, the default on a device.
//
// cuBLASLt uses column-major matrices. A row-major C (m x n) is, byte for byte, a column-major C^T
// (n x m) = B^T A^T, so the operands are exchanged. An operand that is stored by rows here needs no
// transposition there; one that is stored by columns does.
//
// The library's heuristic takes longer than a small product, so its choice is cached for every kind
// of product. There is one handle per device. A workspace from the caching allocator lets the
// library split k if C is small.
#ifndef RINGSMITH_VGPU
#include <cublasLt.h>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <type_traits>

#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/matmul.hpp"
#include "kernels/cuda/scratch.hpp"
#include "kernels/mode.hpp"

namespace ringsmith::kernels::cuda {

namespace {

constexpr std::size_t kWorkspace = std::size_t{32} << 20;  // bytes: NVIDIA's advice for Hopper

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw CudaError(std::string(call) + ": " + cublasLtGetStatusString(status));
}
#define cublas_check(...) check((__VA_ARGS__), #__VA_ARGS__)

template <class Handle, cublasStatus_t (*kDestroy)(Handle)>
struct Owned {
  Handle handle = nullptr;
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { (void)kDestroy(handle); }
};
using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

template <class T>
constexpr cudaDataType_t kType = std::is_same_v<T, float> ? CUDA_R_32F
                                 : std::is_same_v<T, f16> ? CUDA_R_16F
                                                          : CUDA_R_16BF;

// A matrix as column-major memory: `columns` columns of `rows` elements, `ld` apart.
struct Memory {
  const void* data;
  std::int64_t rows, columns, ld, batch_stride;
  bool transposed;  // the operand is the transpose of the memory

  // Describes the transpose of m, because the whole product is transposed. False if no stride is 1
  // or if lines of m overlap.
  template <class T>
  static bool of(const Matrix<const T>& m, std::int64_t batch_stride, Memory& to) {
    if (m.col_stride == 1 && (m.row_stride >= m.cols || m.rows == 1))
      to = {m.data, m.cols, m.rows, std::max(m.row_stride, m.cols), batch_stride, false};
    else if (m.row_stride == 1 && (m.col_stride >= m.rows || m.cols == 1))
      to = {m.data, m.rows, m.cols, std::max(m.col_stride, m.rows), batch_stride, true};
    else
      return false;
    return true;
  }
};

struct Layout {
  Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> layout;
  Layout(cudaDataType_t type, const Memory& m, std::int64_t batches) {
    cublas_check(cublasLtMatrixLayoutCreate(&layout.handle, type,
                                            static_cast<std::uint64_t>(m.rows),
                                            static_cast<std::uint64_t>(m.columns), m.ld));
    const auto count = static_cast<std::int32_t>(batches);
    cublas_check(cublasLtMatrixLayoutSetAttribute(layout.handle, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                  &count, sizeof count));
    cublas_check(cublasLtMatrixLayoutSetAttribute(layout.handle,
                                                  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                  &m.batch_stride, sizeof m.batch_stride));
  }
};

// Products with the same key use the same algorithm.
using Key =
    std::tuple<int, int, Float32, bool, bool, bool, std::int64_t, std::int64_t, std::int64_t,
               std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;

class Library {
 public:
  static Library& get() {
    static Library library;
    return library;
  }

  template <class T>
  void multiply(const Memory& left, const Memory& right, const Memory& result,
                const Product<T>& p) {
    int device = 0;
    cuda_check(cudaGetDevice(&device));
    T* const c = p.c.data;
    const Float32 precision = std::is_same_v<T, float> ? float32() : Float32{};
    Operation operation;
    describe(operation, kType<T>, left, right, p.bias, precision);
    const Layout a(kType<T>, left, p.batches), b(kType<T>, right, p.batches),
        d(kType<T>, result, p.batches);
    // The alignment of the pointers decides which algorithms may run.
    const std::int64_t alignment =
        (reinterpret_cast<std::intptr_t>(left.data) | reinterpret_cast<std::intptr_t>(right.data) |
         reinterpret_cast<std::intptr_t>(c)) %
        16;
    const Key key{device,           kType<T>,          precision,   left.transposed,
                  right.transposed, p.bias != nullptr, result.rows, result.columns,
                  p.a.cols,         left.ld,           right.ld,    result.ld,
                  p.batches,        alignment};
    const std::scoped_lock lock(mutex_);
    cublasLtHandle_t& handle = handles_[device];
    if (handle == nullptr) cublas_check(cublasLtCreate(&handle));
    const auto known = algorithms_.find(key);
    const cublasLtMatmulAlgo_t algorithm =
        known != algorithms_.end()
            ? known->second
            : algorithms_
                  .emplace(key, pick(handle, operation, a, b, d, alignment == 0 ? 16 : sizeof(T)))
                  .first->second;
    const Scratch<std::byte> workspace(static_cast<std::int64_t>(kWorkspace));
    const float one = 1, beta = p.store == Store::add ? 1 : 0;
    cublas_check(cublasLtMatmul(handle, operation.handle, &one, left.data, a.layout.handle,
                                right.data, b.layout.handle, &beta, c, d.layout.handle, c,
                                d.layout.handle, &algorithm, workspace.data(), kWorkspace,
                                stream()));
  }

 private:
  static void describe(Operation& operation, cudaDataType_t type, const Memory& left,
                       const Memory& right, const void* bias, Float32 precision) {
    cublas_check(cublasLtMatmulDescCreate(
        &operation.handle,
        precision == Float32::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
        CUDA_R_32F));
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
      cublas_check(
          cublasLtMatmulDescSetAttribute(operation.handle, attribute, &value, sizeof value));
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, left.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, right.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (bias == nullptr) return;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
  }

  static cublasLtMatmulAlgo_t pick(cublasLtHandle_t handle, const Operation& operation,
                                   const Layout& a, const Layout& b, const Layout& d,
                                   std::size_t alignment) {
    Preference preference;
    cublas_check(cublasLtMatmulPreferenceCreate(&preference.handle));
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      cublas_check(
          cublasLtMatmulPreferenceSetAttribute(preference.handle, attribute, &value, sizeof value));
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
    const auto bytes = static_cast<std::uint32_t>(alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, bytes);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, bytes);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, bytes);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, bytes);
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    cublas_check(cublasLtMatmulAlgoGetHeuristic(handle, operation.handle, a.layout.handle,
                                                b.layout.handle, d.layout.handle, d.layout.handle,
                                                preference.handle, 1, &result, &found));
    if (found == 0) throw CudaError("cuBLASLt has no algorithm for this matrix product");
    return result.algo;
  }

  std::mutex mutex_;
  std::map<int, cublasLtHandle_t> handles_;  // one per device, for the life of the process
  std::map<Key, cublasLtMatmulAlgo_t> algorithms_;
};

}  // namespace

namespace {

// False if the library has no layout for the product, or k is 0.
template <class T>
bool multiply(const Product<T>& p) {
  if (p.c.rows * p.c.cols * p.batches == 0) return true;
  Memory a, b, c;
  const bool fits = Memory::of(p.a, p.a_batch, a) && Memory::of(p.b, p.b_batch, b) &&
                    Memory::of(Matrix<const T>(p.c), p.c_batch, c) && !c.transposed;
  if (!fits || p.a.cols == 0) return false;
  Library::get().multiply(b, a, c, p);
  return true;
}

}  // namespace

void matmul_cublaslt(const Product<float>& p) {
  if (!multiply(p)) matmul_vectorised(p);
}
void matmul_cublaslt(const Product<f16>& p) {
  if (!multiply(p)) matmul_blocked(p);
}
void matmul_cublaslt(const Product<bf16>& p) {
  if (!multiply(p)) matmul_blocked(p);
}

}  // namespace ringsmith::kernels::cuda
#endif
