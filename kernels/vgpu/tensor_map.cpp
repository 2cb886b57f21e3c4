#include "kernels/vgpu/tensor_map.hpp"

#include <string>

#include "kernels/vgpu/error.hpp"

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                void* data, const cuuint64_t* sizes, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* element_strides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion /*promotion*/,
                                CUtensorMapFloatOOBfill outside) {
  const auto no = [](const std::string& why) {
    (void)vgpu::fail(cudaErrorInvalidValue, "cuTensorMapEncodeTiled: " + why);
    return CUDA_ERROR_INVALID_VALUE;
  };
  if (type != CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 || rank != 3 ||
      interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || swizzle != CU_TENSOR_MAP_SWIZZLE_128B ||
      outside != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
    return no("only 3 dimensions of bf16 with the 128-byte swizzle and zeros are modelled");
  if (reinterpret_cast<std::uintptr_t>(data) % 16 != 0)
    return no("the address is no multiple of 16");
  for (int i = 0; i < 3; ++i) {
    if (sizes[i] == 0 || sizes[i] > 0xffffffffU) return no("a size is not 1 to 2^32 - 1");
    if (box[i] == 0 || box[i] > 256) return no("the box is not 1 to 256 elements long");
    if (element_strides[i] != 1) return no("strides of elements are not modelled");
    if (i < 2 && (strides[i] % 16 != 0 || strides[i] >> 40 != 0))
      return no("a stride is no multiple of 16 bytes below 2^40");
  }
  if (box[0] % vgpu::kPart != 0) return no("rows of the box are no multiple of 16 bytes");
  if (box[0] > 64) return no("rows of the box are longer than the swizzle's 128 bytes");
  if (box[0] < 64) return no("rows of the box shorter than 128 bytes are not modelled");
  vgpu::TensorMap tensor;
  tensor.data = static_cast<const std::byte*>(data);
  for (unsigned i = 0; i < 3; ++i) {
    tensor.sizes[i] = static_cast<std::uint32_t>(sizes[i]);
    tensor.box[i] = box[i];
    if (i < 2) tensor.strides[i] = strides[i];
  }
  *map = {};
  std::memcpy(map->opaque, &tensor, sizeof tensor);
  return CUDA_SUCCESS;
}
