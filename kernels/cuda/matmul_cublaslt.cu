// Matrix product, version 7: cuBLASLt, the default on a device.
//
// cuBLASLt uses column-major matrices. A row-major C (m x n) is, byte for byte, a column-major C^T
// (n x m) = B^T A^T, so the operands are exchanged. An operand that is stored by rows here needs no
// transposition there; one that is stored by columns does.
//
// The library's heuristic takes longer than a small product, so its choice is cached for every kind
// of product. There is one handle per device. A workspace from the caching allocator lets the
// library split k if C is small. Only reduction schemes that add the parts in float are permitted:
// the others round each part to the type of C, and by default the library may choose them. A 16-bit
// product that is added to C (Store::add) is rounded before the addition, and once more after it.
//
// The library does not support every product. If it has no algorithm, or refuses the product with
// its own algorithm, the caller computes it with another version of the ladder.
//
// In the feed-forward layers of a transformer the library also computes GELU, with the first
// product, and GELU's slope, with the second product of the backward pass. No kernel then reads and
// writes the hidden layer again.
#include <algorithm>
#include <cublasLt.h>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>

#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/matmul.hpp"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/scratch.hpp"
#include "kernels/mode.hpp"

namespace ringsmith::kernels::cuda {

namespace {

constexpr std::size_t kWorkspace = std::size_t{32} << 20;  // bytes: NVIDIA's advice for Hopper
constexpr std::size_t kAligned = 16;                       // bytes, for the fastest algorithms

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

// 16 bytes, or the alignment of a single element.
template <class T>
std::size_t alignment_of(const T* p) {
  return aligned_for(p, kAligned / sizeof(T)) ? kAligned : sizeof(T);
}

// A matrix as column-major memory: `columns` columns of `rows` elements, `ld` apart.
struct Memory {
  const void* data;
  std::int64_t rows, columns, ld, batch_stride;
  bool transposed;  // the operand is the transpose of the memory

  // The alignment of all matrices of the batch. The library itself considers the columns' distance.
  template <class T>
  [[nodiscard]] std::size_t alignment() const {
    const bool apart = batch_stride * std::int64_t{sizeof(T)} % std::int64_t{kAligned} == 0;
    return apart ? alignment_of(static_cast<const T*>(data)) : sizeof(T);
  }

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

// Computed by the library in addition to the product.
struct Epilogue {
  cublasLtEpilogue_t kind = CUBLASLT_EPILOGUE_DEFAULT;
  const void* vector = nullptr;
  const void* matrix = nullptr;  // GELU's arguments, in the layout of the result

  // The bias has an element for each row of the transposed product. The sums of a's rows are those
  // of the columns of its right operand.
  template <class T>
  static Epilogue of(const Product<T>& p, const GeluEpilogue<T>& gelu) {
    if (gelu.of != nullptr) return {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, p.bias, gelu.of};
    if (gelu.slope_at != nullptr) return {CUBLASLT_EPILOGUE_DGELU, nullptr, gelu.slope_at};
    if (p.bias != nullptr) return {CUBLASLT_EPILOGUE_BIAS, p.bias};
    if (p.row_sums != nullptr) return {CUBLASLT_EPILOGUE_BGRADB, p.row_sums};
    return {};
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
    std::tuple<int, int, Float32, bool, bool, int, std::size_t, std::int64_t, std::int64_t,
               std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::size_t>;

class Library {
 public:
  static Library& get() {
    static Library library;
    return library;
  }

  // False if the library does not support the product.
  template <class T>
  bool multiply(const Memory& left, const Memory& right, const Memory& result, const Product<T>& p,
                const GeluEpilogue<T>& gelu) {
    int device = 0;
    cuda_check(cudaGetDevice(&device));
    T* const c = p.c.data;
    const Float32 precision = std::is_same_v<T, float> ? float32() : Float32{};
    Operation operation;
    const Epilogue epilogue = Epilogue::of(p, gelu);
    describe(operation, kType<T>, left, right, result, epilogue, precision);
    const Layout a(kType<T>, left, p.batches), b(kType<T>, right, p.batches),
        d(kType<T>, result, p.batches);
    // The alignment of the matrices and of the vector decides which algorithms may run.
    const std::size_t alignment =
        std::min({left.alignment<T>(), right.alignment<T>(), result.alignment<T>()});
    const Key key{device,
                  kType<T>,
                  precision,
                  left.transposed,
                  right.transposed,
                  epilogue.kind,
                  alignment_of(static_cast<const T*>(epilogue.vector)),
                  result.rows,
                  result.columns,
                  p.a.cols,
                  left.ld,
                  right.ld,
                  result.ld,
                  p.batches,
                  alignment};
    const std::scoped_lock lock(mutex_);
    cublasLtHandle_t& handle = handles_[device];
    if (handle == nullptr) cublas_check(cublasLtCreate(&handle));
    auto known = algorithms_.find(key);
    if (known == algorithms_.end())
      known = algorithms_.emplace(key, pick(handle, operation, a, b, d, alignment)).first;
    if (!known->second) return false;
    const Scratch<std::byte> workspace(static_cast<std::int64_t>(kWorkspace));
    const float one = 1, beta = p.store == Store::add ? 1 : 0;
    const cublasStatus_t status =
        cublasLtMatmul(handle, operation.handle, &one, left.data, a.layout.handle, right.data,
                       b.layout.handle, &beta, c, d.layout.handle, c, d.layout.handle,
                       &*known->second, workspace.data(), kWorkspace, stream());
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
      known->second.reset();
      return false;
    }
    check(status, "cublasLtMatmul");
    return true;
  }

 private:
  static void describe(Operation& operation, cudaDataType_t type, const Memory& left,
                       const Memory& right, const Memory& result, const Epilogue& epilogue,
                       Float32 precision) {
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
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue.kind);
    if (epilogue.matrix != nullptr) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, epilogue.matrix);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, result.ld);
    }
    if (epilogue.vector == nullptr) return;
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, epilogue.vector);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
  }

  // Returns no algorithm if the library does not support the product.
  static std::optional<cublasLtMatmulAlgo_t> pick(cublasLtHandle_t handle,
                                                  const Operation& operation, const Layout& a,
                                                  const Layout& b, const Layout& d,
                                                  std::size_t alignment) {
    Preference preference;
    cublas_check(cublasLtMatmulPreferenceCreate(&preference.handle));
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      cublas_check(
          cublasLtMatmulPreferenceSetAttribute(preference.handle, attribute, &value, sizeof value));
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    const auto bytes = static_cast<std::uint32_t>(alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, bytes);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, bytes);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, bytes);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, bytes);
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle, operation.handle, a.layout.handle, b.layout.handle, d.layout.handle,
        d.layout.handle, preference.handle, 1, &result, &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && found == 0))
      return std::nullopt;
    check(status, "cublasLtMatmulAlgoGetHeuristic");
    if (result.state != CUBLAS_STATUS_SUCCESS) return std::nullopt;
    return result.algo;
  }

  std::mutex mutex_;
  std::map<int, cublasLtHandle_t> handles_;  // one per device, for the life of the process
  std::map<Key, std::optional<cublasLtMatmulAlgo_t>> algorithms_;
};

// False if the library does not support the product, has no layout for it, or k is 0.
template <class T>
bool multiply(const Product<T>& p, const GeluEpilogue<T>& gelu = {}) {
  if (p.c.rows * p.c.cols * p.batches == 0 && p.row_sums == nullptr) return true;
  Memory a, b, c;
  const bool fits = Memory::of(p.a, p.a_batch, a) && Memory::of(p.b, p.b_batch, b) &&
                    Memory::of(Matrix<const T>(p.c), p.c_batch, c) && !c.transposed;
  if (!fits || p.a.cols == 0 || p.c.rows * p.c.cols == 0) return false;
  return Library::get().multiply(b, a, c, p, gelu);
}

// `instead` computes the products that the library refuses.
template <class T, class Instead>
void multiply(const Product<T>& p, const Instead& instead) {
  if (multiply(p)) return;
  if (p.row_sums == nullptr) return instead(p);
  if constexpr (!std::is_same_v<T, float>) {
    column_sum<T>(p.a.t(), {p.row_sums, static_cast<std::size_t>(p.a.rows)}, Store::replace);
    Product<T> rest = p;
    rest.row_sums = nullptr;
    multiply(rest, instead);
  }
}

}  // namespace

template <class T>
bool matmul_cublaslt_gelu(const Product<T>& p, const GeluEpilogue<T>& gelu) {
  constexpr std::int64_t kPack = kAligned / sizeof(T);
  const T* const arguments = gelu.of != nullptr ? gelu.of : gelu.slope_at;
  const bool fits = p.c.row_stride == p.c.cols && p.c.cols % kPack == 0 &&
                    aligned_for(arguments, kPack);  // the library's conditions on `matrix`
  return fits && (gelu.of == nullptr || p.bias != nullptr) && multiply(p, gelu);
}
RINGSMITH_HALVES(matmul_cublaslt_gelu)

void matmul_cublaslt(const Product<float>& p) { multiply(p, matmul_vectorised); }
void matmul_cublaslt(const Product<f16>& p) {
  multiply(p, [](const Product<f16>& rest) { matmul_blocked(rest); });
}
void matmul_cublaslt(const Product<bf16>& p) {
  multiply(p, [](const Product<bf16>& rest) {
    has_tensor_cores() ? matmul_pipelined(rest, PipelineStages::four) : matmul_blocked(rest);
  });
}

}  // namespace ringsmith::kernels::cuda
