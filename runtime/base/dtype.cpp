#include "runtime/base/dtype.hpp"

#include <array>
#include <utility>

namespace ringsmith {

DType parse_dtype(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, DType>, 7> foreign{{{"float", DType::f32},
                                                                       {"half", DType::f16},
                                                                       {"bfloat16", DType::bf16},
                                                                       {"double", DType::f64},
                                                                       {"int32", DType::i32},
                                                                       {"int64", DType::i64},
                                                                       {"uint8", DType::u8}}};
  for (const auto& [alias, dtype] : foreign)
    if (name == alias || name == name_of(dtype)) return dtype;
  if (name == name_of(DType::boolean)) return DType::boolean;
  throw UsageError("unknown dtype '" + std::string(name) +
                   "': use f32, f16, bf16, f64, i32, i64, u8 or bool");
}

}  // namespace ringsmith
