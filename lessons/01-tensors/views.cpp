// views: six numbers in memory, and views of them. Only one operation here has to copy.
#include <cstdio>

#include "runtime/tensor/tensor.hpp"

using namespace ringsmith;

Tensor numbers() { return arange(0, 6, 1, {DType::f32}); }

void show(const char* name, const Tensor& t, const Tensor& base) {
  std::printf("%-21s sizes %-7s strides %-7s offset %lld  %s, %-10s  %s\n", name,
              to_string(t.sizes()).c_str(), to_string(t.strides()).c_str(),
              static_cast<long long>(t.storage_offset()),
              t.storage() == base.storage() ? "view" : "copy",
              t.is_contiguous() ? "contiguous" : "strided", t.str().c_str());
}

int main() {
  const Tensor six = numbers();
  show("six", six, six);
  const Tensor m = six.view({2, 3});
  show("m = six.view(2,3)", m, six);
  show("m.transpose(0,1)", m.transpose(0, 1), six);
  show("m.select(1,2)", m.select(1, 2), six);
  show("m.slice(1,0,3,2)", m.slice(1, 0, 3, 2), six);
  show("m.select(0,1)", m.select(0, 1), six);
  show("row.expand(3,2)", six.slice(0, 0, 2).expand({3, 2}), six);
  show("m^T.reshape(6)", m.transpose(0, 1).reshape({6}), six);
  show("m.slice(0,1,1)", m.slice(0, 1, 1), six);

  std::printf("\nthe parts of three ranks\n");
  for (int rank = 0; rank < 3; ++rank)
    show("six.slice(0,2r,2r+2)", six.slice(0, 2 * rank, 2 * rank + 2), six);

  m.select(1, 2).fill_(9);
  std::printf("\nafter m.select(1,2).fill_(9)\n");
  show("six", six, six);
}
