// by_hand: how 16 bits round a sum, a small gradient, and a small step.
#include <cstdio>
#include <initializer_list>

#include "kernels/half.hpp"

using ringsmith::bf16;
using ringsmith::f16;

namespace {

template <class Half>
float rounded(float x) {
  return static_cast<float>(Half(x));
}

template <class Half>
void around(const char* name) {
  std::printf("  %-5s", name);
  for (const float x : {1.0F, 256.0F, 2048.0F}) {
    Half next(x);
    ++next.bits;
    std::printf("  %4g, %-10.10g", static_cast<double>(x),
                static_cast<double>(static_cast<float>(next)));
  }
  std::printf("\n");
}

// Prints a gradient that backward computes in f16 from a loss that was multiplied by scale.
void small(const char* name, float gradient, float scale) {
  const float arrives = rounded<f16>(gradient * scale);
  std::printf("  %-8s times %-6g in f16: %-11g divided: %g\n", name, static_cast<double>(scale),
              static_cast<double>(arrives), static_cast<double>(arrives / scale));
}

}  // namespace

int main() {
  std::printf("a number and the next one\n");
  around<bf16>("bf16");
  around<f16>("f16");

  const auto r = rounded<bf16>;
  std::printf("sums in bf16, rounded after each addition\n");
  std::printf("  (256 + 1) + 1 = %g\n", static_cast<double>(r(r(256 + 1) + 1)));
  std::printf("  (1 + 1) + 256 = %g\n", static_cast<double>(r(r(1 + 1) + 256)));

  std::printf("a small gradient\n");
  small("2^-26", 0x1p-26F, 1);
  small("2^-26", 0x1p-26F, 65536);
  small("1", 1, 65536);
  small("1", 1, 32768);

  std::printf("a weight of 256, six steps of 1/2\n  weight in bf16 ");
  float weight = 256, master = 256;
  for (int step = 0; step < 6; ++step)
    std::printf(" %g", static_cast<double>(weight = r(weight + 0.5F)));
  std::printf("\n  master in f32  ");
  for (int step = 0; step < 6; ++step) std::printf(" %g", static_cast<double>(master += 0.5F));
  std::printf("\n  ... rounded    ");
  master = 256;
  for (int step = 0; step < 6; ++step) std::printf(" %g", static_cast<double>(r(master += 0.5F)));

  std::printf("\nfive gradients 10 20 30 40 50 as 2 + 2 + 1: the gradients of the three steps\n");
  const float groups[3][2] = {{10, 20}, {30, 40}, {50, 0}};
  const int sizes[3] = {2, 2, 1};
  std::printf("  divided by the group's size  ");
  for (int g = 0; g < 3; ++g)
    std::printf(" %g", static_cast<double>((groups[g][0] + groups[g][1]) / float(sizes[g])));
  std::printf("\n  divided by 2                 ");
  for (const auto& group : groups)
    std::printf(" %g", static_cast<double>((group[0] + group[1]) / 2));
  std::printf("\n");
}
