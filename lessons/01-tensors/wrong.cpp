// wrong: common mistakes with strided memory, and their results.
#include <cstdio>
#include <memory>
#include <span>

#include "runtime/base/error.hpp"
#include "runtime/tensor/tensor.hpp"

using namespace ringsmith;

Tensor numbers() { return arange(0, 6, 1, {DType::f32}); }

// A flat operation: it gets a pointer to the first number and a count.
float sum(const float* values, std::int64_t count) {
  float total = 0;
  for (std::int64_t i = 0; i < count; ++i) total += values[i];
  return total;
}

template <class Act>
void refused(const char* name, Act act) {
  try {
    act();
    std::printf("%s: no objection\n", name);
  } catch (const UsageError& error) {
    std::printf("%s: %s\n", name, error.what());
  }
}

int main() {
  const Tensor m = numbers().view({2, 3});
  const Tensor column = m.select(1, 2);  // 2 and 5
  std::printf("the column holds %s\n", column.str().c_str());
  std::printf("sum by pointer and count: %g\n", sum(column.data<float>(), column.numel()));
  std::printf("sum of contiguous():      %g\n", sum(column.contiguous().data<float>(), 2));
  refused("column.span<float>()", [&] { static_cast<void>(column.span<float>()); });
  refused("m.transpose(0,1).view(6)", [&] { static_cast<void>(m.transpose(0, 1).view({6})); });
  refused("m.view(4)", [&] { static_cast<void>(m.view({4})); });
  refused("m.data<int>()", [&] { static_cast<void>(m.data<std::int32_t>()); });

  // Copies the first four numbers two places to the right in the same memory, front to back.
  const Tensor a = numbers(), b = numbers();
  float* by_hand = a.data<float>();
  for (int i = 0; i < 4; ++i) by_hand[i + 2] = by_hand[i];
  b.slice(0, 2, 6).copy_(b.slice(0, 0, 4));
  std::printf("overlapping copy by hand: %s\n", a.str().c_str());
  std::printf("overlapping copy_():      %s\n", b.str().c_str());

  // A view keeps the storage alive after the tensor that allocated it is destroyed.
  Tensor row;
  std::weak_ptr<Storage> storage;
  {
    const Tensor made = numbers().view({2, 3});
    storage = made.storage();
    row = made.select(0, 1);
  }
  std::printf("the matrix has gone; its row is %s\n", row.str().c_str());
  row = Tensor();
  std::printf("the row has gone too; the storage is %s\n", storage.expired() ? "freed" : "kept");

  const Tensor nothing = zeros({0, 3});
  std::printf("%s: %lld numbers, sum %g\n", nothing.str().c_str(),
              static_cast<long long>(nothing.numel()), sum(nothing.data<float>(), nothing.numel()));
}
