#include <nlohmann/json.hpp>

#include "runtime/autograd/functions.hpp"
#include "tests/reference/ops.hpp"

namespace ringsmith::reference {

namespace {

Pair pair_of(const Call& c, const char* name) {  // 2 or [2, 3]
  const nlohmann::json& value = c.attrs.at(name);
  if (!value.is_array()) return {value.get<std::int64_t>(), value.get<std::int64_t>()};
  require(value.size() == 2, std::string(name) + ": expected one number or two");
  return {value[0].get<std::int64_t>(), value[1].get<std::int64_t>()};
}

Tensor conv2d_of(const Call& c) {
  return conv2d(c.in("x"), c.in("weight"), c.optional_in("bias"), pair_of(c, "stride"),
                pair_of(c, "padding"), pair_of(c, "dilation"),
                c.attrs.at("groups").get<std::int64_t>());
}

Tensor max_pool_of(const Call& c) {
  return max_pool2d(c.in("x"), pair_of(c, "kernel"), pair_of(c, "stride"), pair_of(c, "padding"));
}

Tensor avg_pool_of(const Call& c) {
  return avg_pool2d(c.in("x"), pair_of(c, "kernel"), pair_of(c, "stride"), pair_of(c, "padding"),
                    c.attrs.at("count_include_pad").get<bool>());
}

Tensor global_avg_pool_of(const Call& c) {
  require(c.attrs.at("output").get<int>() == 1, "adaptive_avgpool2d: only output 1 is supported");
  return global_avg_pool2d(c.in("x"));
}

}  // namespace

void add_images(OpTable& table) {
  table["conv2d"] = conv2d_of;
  table["maxpool2d"] = max_pool_of;
  table["avgpool2d"] = avg_pool_of;
  table["adaptive_avgpool2d"] = global_avg_pool_of;
}

}  // namespace ringsmith::reference
