// Convolution and its gradients on a device must equal the CPU's loops, because every sum is exact.
#include "kernels/conv.hpp"

#include <random>

#include "tests/kernels/cuda/support.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;
using namespace ringsmith::kernels;

namespace {

template <class T>
std::vector<T> dyadic(std::int64_t n, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_int_distribution<int> d(-16, 16);
  std::vector<T> v(static_cast<std::size_t>(n));
  for (T& e : v) e = static_cast<T>(d(engine)) / 8;
  return v;
}

template <class T>
void compare(const Conv2dShape& s) {
  INFO(s.n << "x" << s.c << "x" << s.h << "x" << s.w << " kernel " << s.kh << "x" << s.kw
           << " groups " << s.groups);
  const auto x = dyadic<T>(s.n * s.c * s.h * s.w, 1), w = dyadic<T>(s.out_c * s.taps(), 2),
             b = dyadic<T>(s.out_c, 3), dy = dyadic<T>(s.n * s.out_c * s.out_pixels(), 4);
  const OnDevice<T> x_(x), w_(w), b_(b), dy_(dy), y(dy.size()), plain(dy.size()), dx(x.size()),
      dw(w.size()), db(b.size());
  std::vector<T> want_y(dy), want_plain(dy), want_dx(x), want_dw(w), want_db(b);
  const ModeScope oracle(Mode::oracle);
  cuda::conv2d<T>(s, x_.view(), w_.view(), b_.view(), y.span());
  cuda::conv2d<T>(s, x_.view(), w_.view(), {}, plain.span());
  cuda::conv2d_grad_input<T>(s, dy_.view(), w_.view(), dx.span());
  cuda::conv2d_grad_weight<T>(s, dy_.view(), x_.view(), dw.span());
  cuda::conv2d_grad_bias<T>(s, dy_.view(), db.span());
  cpu::conv2d<T>(s, x, w, b, want_y);
  cpu::conv2d<T>(s, x, w, {}, want_plain);
  cpu::conv2d_grad_input<T>(s, dy, w, want_dx);
  cpu::conv2d_grad_weight<T>(s, dy, x, want_dw);
  cpu::conv2d_grad_bias<T>(s, dy, want_db);
  CHECK(y.host() == want_y);
  CHECK(plain.host() == want_plain);
  CHECK(dx.host() == want_dx);
  CHECK(dw.host() == want_dw);
  CHECK(db.host() == want_db);
}

}  // namespace

TEMPLATE_TEST_CASE("convolution on a device equals the loops where every sum is exact", "[cuda]",
                   float, double) {
  for (const Conv2dShape& s : std::vector<Conv2dShape>{
           {1, 1, 1, 1, 1, 1, 1},                       // one multiplication
           {2, 3, 7, 5, 4, 3, 3, 1, 1, 1, 1},           // the usual 3x3
           {2, 4, 8, 9, 6, 1, 1},                       // 1x1
           {2, 4, 8, 9, 6, 1, 1, 2, 2},                 // 1x1 with a stride
           {3, 2, 9, 7, 3, 3, 2, 2, 1, 0, 2},           // different in height and width
           {1, 2, 9, 10, 2, 3, 3, 1, 1, 2, 2, 2, 2},    // dilated
           {2, 6, 6, 7, 4, 2, 3, 1, 2, 1, 1, 1, 1, 2},  // groups
           {2, 4, 5, 5, 4, 3, 3, 1, 1, 1, 1, 1, 1, 4},  // depthwise
           {1, 2, 3, 3, 2, 3, 3, 1, 1, 3, 3},           // windows that cover only padding
           {2, 2, 4, 11, 3, 2, 3, 3, 3, 1, 4, 1, 2},    // strides, padding and dilation
           {0, 2, 4, 4, 3, 3, 3, 1, 1, 1, 1},           // an empty batch
           {1, 16, 17, 19, 70, 3, 3, 2, 2, 1, 1},       // more channels than a tile has
           {5, 2, 33, 40, 3, 3, 3, 1, 1, 1, 1}})        // more pixels than a chunk has
    compare<TestType>(s);
}
