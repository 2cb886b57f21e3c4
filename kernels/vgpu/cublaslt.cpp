// The emulated cuBLASLt: cublasLtMatmul() is an operation of its stream, a plain loop.
//
// If k is large and D is small, the heuristic splits the sums over k, as the library does to fill a
// device. Of the reduction schemes that the preference permits, it takes the one with the largest
// error: parts in the output's type (OUTPUT_TYPE, INPLACE), then in float (COMPUTE_TYPE). So the
// emulator shows whether a caller permits sums that round their parts.
#include "kernels/vgpu/cublaslt.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#include <numeric>
#include <tuple>
#include <vector>

#include "kernels/vgpu/counters.hpp"
#include "kernels/vgpu/device.hpp"
#include "kernels/vgpu/order.hpp"
#include "kernels/vgpu/queue.hpp"
#include "kernels/vgpu/rights.hpp"

struct cublasLtContext {};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  std::int64_t rows, columns, ld;
  std::int32_t batches = 1;
  std::int64_t batch_stride = 0;
};
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  cudaDataType_t bias_type = CUDA_R_32F;
  void* aux = nullptr;
  std::int64_t aux_ld = 0;
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace_bytes = 0;
  std::uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C, D
};

namespace vgpu {

namespace {

std::atomic<CublasLtAnswer> next_answer{CublasLtAnswer::algorithm};
std::atomic<std::uint64_t> heuristics{0}, products{0}, refused_products{0};

// The contents of a cublasLtMatmulAlgo_t.
struct Algorithm {
  std::uint64_t known, parts, scheme, alignment, late;
};
constexpr std::uint64_t kKnown = 0x6375626c61734c74;  // marks an algorithm of the heuristic
constexpr std::int64_t kSplitDepth = 4096, kSplitElements = 128 * 128;
constexpr std::uint64_t kParts = 8;

std::size_t bytes_of(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : 2; }

float load(cudaDataType_t type, const void* data, std::int64_t i) {
  if (type == CUDA_R_16F) return __half2float(static_cast<const __half*>(data)[i]);
  if (type == CUDA_R_16BF) return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
  return static_cast<const float*>(data)[i];
}
void store(cudaDataType_t type, void* data, std::int64_t i, float x) {
  if (type == CUDA_R_16F)
    static_cast<__half*>(data)[i] = __float2half(x);
  else if (type == CUDA_R_16BF)
    static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16(x);
  else
    static_cast<float*>(data)[i] = x;
}
float rounded(cudaDataType_t type, float x) {
  float to[1];
  store(type, to, 0, x);
  return load(type, to, 0);
}

template <class T, class Object>
cublasStatus_t set(T Object::*member, Object* object, const void* value, std::size_t bytes) {
  if (object == nullptr || value == nullptr || bytes != sizeof(T))
    return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&(object->*member), value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

struct Job {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a, b, c, d;
  const void *a_data, *b_data, *c_data;
  void* d_data;
  float alpha, beta;
  Algorithm algorithm;

  [[nodiscard]] std::int64_t depth() const {
    return operation.transpose_a == CUBLAS_OP_N ? a.columns : a.rows;
  }
  // Row by row: a matrix, or its transpose.
  [[nodiscard]] std::vector<float> rows(const cublasLtMatrixLayoutOpaque_t& m, const void* data,
                                        std::int64_t batch, bool transpose) const {
    const std::int64_t height = transpose ? m.columns : m.rows, down = transpose ? m.ld : 1;
    const std::int64_t width = transpose ? m.rows : m.columns, across = transpose ? 1 : m.ld;
    std::vector<float> all;
    for (std::int64_t i = 0; i < height; ++i)
      for (std::int64_t j = 0; j < width; ++j) {
        const float x = load(m.type, data, batch * m.batch_stride + i * down + j * across);
        all.push_back(operation.compute == CUBLAS_COMPUTE_32F ? x
                                                              : nvcuda::wmma::__float_to_tf32(x));
      }
    return all;
  }

  // The product of a row of op(a) and a column of op(b).
  [[nodiscard]] float sum(const float* left, const float* right) const {
    const auto parts = static_cast<std::int64_t>(algorithm.parts);
    const bool rounds = algorithm.scheme == CUBLASLT_REDUCTION_SCHEME_INPLACE ||
                        algorithm.scheme == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    float all = 0;
    for (std::int64_t p = 0; p < parts; ++p) {
      float part = 0;
      for (std::int64_t k = p * depth() / parts; k < (p + 1) * depth() / parts; ++k)
        part += left[k] * right[k];
      all += rounds ? rounded(d.type, part) : part;
    }
    return all;
  }

  // The tanh approximation, as in the library.
  static float gelu(float x) {
    const float u = std::tanh(0.7978845608F * (x + 0.044715F * x * x * x));
    return 0.5F * x * (1 + u);
  }
  static float gelu_slope(float x) {
    const float u = std::tanh(0.7978845608F * (x + 0.044715F * x * x * x));
    return 0.5F * (1 + u) + 0.5F * x * (1 - u * u) * 0.7978845608F * (1 + 3 * 0.044715F * x * x);
  }

  void run() const {
    for (std::int64_t batch = 0; batch < d.batches; ++batch) {
      const auto left = rows(a, a_data, batch, operation.transpose_a == CUBLAS_OP_T);
      const auto right = rows(b, b_data, batch, operation.transpose_b == CUBLAS_OP_N);
      for (std::int64_t j = 0; j < d.columns; ++j)
        for (std::int64_t i = 0; i < d.rows; ++i)
          finish(batch, i, j, alpha * sum(left.data() + i * depth(), right.data() + j * depth()));
      if (operation.epilogue == CUBLASLT_EPILOGUE_BGRADB)
        for (std::int64_t j = 0; j < d.columns; ++j)
          store(d.type, operation.bias, j,
                std::accumulate(right.begin() + j * depth(), right.begin() + (j + 1) * depth(),
                                0.0F));
    }
  }

  void finish(std::int64_t batch, std::int64_t i, std::int64_t j, float x) const {
    // The library of CUDA 13.0 rounds a 16-bit product before it adds C (seen on an H200).
    if (beta != 0)
      x = rounded(d.type, x) + beta * load(c.type, c_data, batch * c.batch_stride + j * c.ld + i);
    if (operation.epilogue == CUBLASLT_EPILOGUE_BIAS ||
        operation.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
      x += load(operation.bias_type, operation.bias, i);
    const std::int64_t aux = j * operation.aux_ld + i;
    if (operation.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
      store(d.type, operation.aux, aux, x);
      x = gelu(x);
    }
    if (operation.epilogue == CUBLASLT_EPILOGUE_DGELU)
      x *= gelu_slope(load(d.type, operation.aux, aux));
    store(d.type, d_data, batch * d.batch_stride + j * d.ld + i, x);
  }
};

bool fits(const cublasLtMatrixLayoutOpaque_t& m, std::int64_t rows, std::int64_t columns,
          std::int32_t batches, cudaDataType_t type) {
  return m.rows == rows && m.columns == columns && m.ld >= rows && m.batches == batches &&
         m.type == type;
}

// Whether the shapes fit each other and the operation has all that its epilogue needs.
bool valid(const Job& job) {
  const auto& [op, a, b, c, d] = std::tie(job.operation, job.a, job.b, job.c, job.d);
  const std::int64_t k = job.depth();
  const bool shapes = k > 0 &&
                      (op.transpose_a == CUBLAS_OP_N ? fits(a, d.rows, k, d.batches, d.type)
                                                     : fits(a, k, d.rows, d.batches, d.type)) &&
                      (op.transpose_b == CUBLAS_OP_N ? fits(b, k, d.columns, d.batches, d.type)
                                                     : fits(b, d.columns, k, d.batches, d.type)) &&
                      fits(c, d.rows, d.columns, d.batches, d.type) &&
                      fits(d, d.rows, d.columns, d.batches, d.type);
  const bool aux =
      op.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || op.epilogue == CUBLASLT_EPILOGUE_DGELU;
  const bool bias =
      op.epilogue != CUBLASLT_EPILOGUE_DEFAULT && op.epilogue != CUBLASLT_EPILOGUE_DGELU;
  return shapes && (!bias || op.bias != nullptr) &&
         (!aux || (op.aux != nullptr && op.aux_ld >= d.rows && op.aux_ld % 8 == 0 &&
                   reinterpret_cast<std::uintptr_t>(op.aux) % 16 == 0));
}

}  // namespace

void set_cublaslt_answer(CublasLtAnswer answer) { next_answer = answer; }
CublasLtCalls cublaslt_calls() { return {heuristics, products, refused_products}; }

}  // namespace vgpu

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "the library was not initialized";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an invalid value was passed";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the requested functionality is not supported";
  }
  return "unknown status";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t ld) {
  *layout = new cublasLtMatrixLayoutOpaque_t{type, static_cast<std::int64_t>(rows),
                                             static_cast<std::int64_t>(columns), ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, std::size_t bytes) {
  using Layout = cublasLtMatrixLayoutOpaque_t;
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return vgpu::set(&Layout::batches, layout, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return vgpu::set(&Layout::batch_stride, layout, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *operation = new cublasLtMatmulDescOpaque_t{compute};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  delete operation;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  using Desc = cublasLtMatmulDescOpaque_t;
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return vgpu::set(&Desc::transpose_a, operation, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return vgpu::set(&Desc::transpose_b, operation, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return vgpu::set(&Desc::epilogue, operation, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return vgpu::set(&Desc::bias, operation, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return vgpu::set(&Desc::bias_type, operation, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return vgpu::set(&Desc::aux, operation, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return vgpu::set(&Desc::aux_ld, operation, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  using Preference = cublasLtMatmulPreferenceOpaque_t;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return vgpu::set(&Preference::workspace_bytes, preference, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return vgpu::set(&Preference::schemes, preference, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      if (preference == nullptr || bytes != sizeof(std::uint32_t))
        return CUBLAS_STATUS_INVALID_VALUE;
      std::memcpy(&preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                  value, bytes);
      return CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  using vgpu::CublasLtAnswer;
  ++vgpu::heuristics;
  *found = 0;
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const vgpu::Job job{*operation, *a, *b, *c, *d, nullptr, nullptr, nullptr, nullptr, 1, 0, {}};
  if (requested < 1 || !vgpu::valid(job)) return CUBLAS_STATUS_INVALID_VALUE;
  const CublasLtAnswer answer = vgpu::next_answer;
  if (answer == CublasLtAnswer::not_supported) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (answer == CublasLtAnswer::none) return CUBLAS_STATUS_SUCCESS;
  vgpu::Algorithm algorithm{vgpu::kKnown, 1, CUBLASLT_REDUCTION_SCHEME_NONE,
                            *std::min_element(preference->alignment, preference->alignment + 4),
                            answer == CublasLtAnswer::late ? 1U : 0U};
  const auto elements = static_cast<std::uint64_t>(d->rows * d->columns * d->batches);
  const std::size_t workspace = vgpu::kParts * elements * sizeof(float);
  if (job.depth() >= vgpu::kSplitDepth && d->rows * d->columns <= vgpu::kSplitElements &&
      workspace <= preference->workspace_bytes)
    for (const std::uint64_t scheme :
         {CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, CUBLASLT_REDUCTION_SCHEME_INPLACE,
          CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE})
      if ((preference->schemes & scheme) != 0) {
        algorithm.parts = vgpu::kParts;
        algorithm.scheme = scheme;
        break;
      }
  *results = {};
  static_assert(sizeof algorithm <= sizeof results->algo);
  std::memcpy(&results->algo, &algorithm, sizeof algorithm);
  results->workspaceSize = algorithm.parts > 1 ? workspace : 0;
  results->state = answer == CublasLtAnswer::failed_algorithm ? CUBLAS_STATUS_NOT_SUPPORTED
                                                              : CUBLAS_STATUS_SUCCESS;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  vgpu::Job job{*operation,
                *a_layout,
                *b_layout,
                *c_layout,
                *d_layout,
                a,
                b,
                c,
                d,
                *static_cast<const float*>(alpha),
                *static_cast<const float*>(beta),
                {}};
  std::memcpy(&job.algorithm, algorithm, sizeof job.algorithm);
  const auto elements = static_cast<std::uint64_t>(job.d.rows * job.d.columns * job.d.batches);
  const bool enough =
      job.algorithm.parts == 1 ||
      (workspace != nullptr && workspace_bytes >= job.algorithm.parts * elements * sizeof(float));
  const auto aligned = [&](const void* p, const cublasLtMatrixLayoutOpaque_t& m) {
    const auto first = reinterpret_cast<std::uintptr_t>(p);
    const auto apart =
        static_cast<std::uint64_t>(m.batches == 1 ? 0 : m.batch_stride) * vgpu::bytes_of(m.type);
    return (first | apart) % job.algorithm.alignment == 0;
  };
  if (!vgpu::valid(job) || job.algorithm.known != vgpu::kKnown || !enough || !aligned(a, job.a) ||
      !aligned(b, job.b) || !aligned(c, job.c) || !aligned(d, job.d))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (job.algorithm.late != 0) {
    ++vgpu::refused_products;
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  vgpu::Queue* const queue = vgpu::queue_of(stream, "cublasLtMatmul");
  if (queue == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  ++vgpu::products;
  queue->add("cublasLtMatmul", [job, queue] {
    vgpu::count_bytes("cublasLtMatmul", 0);
    const vgpu::DeviceRights rights(queue->device().keys());
    const vgpu::Loud loud;
    job.run();
  });
  return CUBLAS_STATUS_SUCCESS;
}
