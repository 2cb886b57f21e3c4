// by_hand: two layers, y = relu(x W1) W2, of eight parameters each, on two ranks, in five ways. The
// program runs all five on the same four samples, counts the numbers that a rank holds and sends,
// and compares the gradients. It prints the step of ZeRO-3 line by line.
#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace {

struct Matrix {
  int rows = 0, columns = 0;
  std::vector<double> numbers;

  Matrix(int r, int c) : rows(r), columns(c), numbers(static_cast<std::size_t>(r * c)) {}
  Matrix(int r, int c, std::vector<double> all) : rows(r), columns(c), numbers(std::move(all)) {}
  double& at(int r, int c) { return numbers[static_cast<std::size_t>(r * columns + c)]; }
  [[nodiscard]] double at(int r, int c) const {
    return numbers[static_cast<std::size_t>(r * columns + c)];
  }
  [[nodiscard]] int size() const { return rows * columns; }
  bool operator==(const Matrix&) const = default;
};

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.rows, b.columns);
  for (int i = 0; i < a.rows; ++i)
    for (int j = 0; j < b.columns; ++j)
      for (int k = 0; k < a.columns; ++k) c.at(i, j) += a.at(i, k) * b.at(k, j);
  return c;
}
Matrix transposed(const Matrix& a) {
  Matrix t(a.columns, a.rows);
  for (int i = 0; i < a.rows; ++i)
    for (int j = 0; j < a.columns; ++j) t.at(j, i) = a.at(i, j);
  return t;
}
Matrix rows(const Matrix& a, int first, int count) {
  Matrix part(count, a.columns);
  for (int i = 0; i < count; ++i)
    for (int j = 0; j < a.columns; ++j) part.at(i, j) = a.at(first + i, j);
  return part;
}
Matrix columns(const Matrix& a, int first, int count) {
  return transposed(rows(transposed(a), first, count));
}
Matrix sum(Matrix a, const Matrix& b) {
  for (std::size_t i = 0; i < a.numbers.size(); ++i) a.numbers[i] += b.numbers[i];
  return a;
}

struct Gradients {
  Matrix w1, w2, x;
};

// Forward and backward of both layers. between: called with y, and with the gradient of x, which a
// tensor split has to sum over the ranks.
Gradients run(const Matrix& x, const Matrix& w1, const Matrix& w2, const Matrix& dy) {
  Matrix h = product(x, w1);
  for (double& v : h.numbers) v = std::max(v, 0.0);
  Matrix dh = product(dy, transposed(w2));
  for (std::size_t i = 0; i < h.numbers.size(); ++i)
    if (h.numbers[i] == 0) dh.numbers[i] = 0;
  return {product(transposed(x), dh), product(transposed(h), dy), product(dh, transposed(w1))};
}

const Matrix kX(4, 2, {1, 2, 3, -1, -2, 1, 2, 2});
const Matrix kW1(2, 4, {1, -1, 2, 0, 1, 1, -1, 3});
const Matrix kW2(4, 2, {1, 0, 2, 1, -1, 1, 0, 2});
const Matrix kDy(4, 2, {1, 1, -1, 2, 0, 1, 1, -2});  // of the loss by y

// What one of the two ranks holds and sends.
class Meter {
 public:
  void hold(int numbers) {
    held_ += numbers;
    most_ = std::max(most_, held_);
  }
  void free(int numbers) { held_ -= numbers; }
  // Of n numbers, a ring of two ranks sends half in a reduce-scatter, and half in an all-gather.
  void reduce_scatter(int n) { sent_ += n / 2; }
  void all_gather(int n) { sent_ += n / 2; }
  void all_reduce(int n) { reduce_scatter(n), all_gather(n); }
  void print(const char* name, int parameters, int gradients, int state) const {
    std::printf("%-14s%10d %10d %7d %9d %15d %7d\n", name, parameters, gradients, state,
                parameters + gradients + state, most_, sent_);
  }
  [[nodiscard]] int held() const { return held_; }

 private:
  int held_ = 0, most_ = 0, sent_ = 0;
};

// ZeRO-3's step, as a list of events; each is played on the meter and printed with what is held.
void zero_3(Meter& meter, bool prints) {
  const auto say = [&](const char* what, const std::function<void()>& does) {
    does();
    if (prints) std::printf("  %-42s holds %2d\n", what, meter.held());
  };
  meter.hold(8 + 16);  // half of the parameters, half of AdamW's two numbers for each
  if (prints) std::printf("  %-42s holds %2d\n", "between steps", meter.held());
  const auto gather = [&] { meter.all_gather(8), meter.hold(8); };
  const auto release = [&] { meter.free(8); };
  say("gather layer 1", gather);
  say("gather layer 2 while layer 1 runs forward", gather);
  say("free layer 1", release);
  say("layer 2 runs forward", [] {});
  say("gather layer 1 while layer 2 runs backward", [&] { gather(), meter.hold(8); });
  say("free layer 2", release);
  say("reduce-scatter layer 2's gradient", [&] { meter.reduce_scatter(8), meter.free(4); });
  say("layer 1 runs backward", [&] { meter.hold(8); });
  say("free layer 1", release);
  say("reduce-scatter layer 1's gradient", [&] { meter.reduce_scatter(8), meter.free(4); });
  say("update, gradients are zero", [&] { meter.free(8); });
}

}  // namespace

int main() {
  const Gradients whole = run(kX, kW1, kW2, kDy);

  // Data parallel: each rank has two of the four samples and all parameters.
  std::vector<Gradients> of;
  for (const int rank : {0, 1})
    of.push_back(run(rows(kX, 2 * rank, 2), kW1, kW2, rows(kDy, 2 * rank, 2)));
  const bool data_agrees =
      sum(of[0].w1, of[1].w1) == whole.w1 && sum(of[0].w2, of[1].w2) == whole.w2;

  // Tensor split: each rank has all samples, two columns of W1 and two rows of W2.
  Matrix y(4, 2), dx(4, 2);
  Meter split;
  split.hold(8 + 8 + 16);
  bool split_agrees = true;
  for (const int rank : {0, 1}) {
    const Matrix w1 = columns(kW1, 2 * rank, 2), w2 = rows(kW2, 2 * rank, 2);
    Matrix h = product(kX, w1);
    for (double& v : h.numbers) v = std::max(v, 0.0);
    y = sum(y, product(h, w2));
    const Gradients mine = run(kX, w1, w2, kDy);
    dx = sum(dx, mine.x);
    split_agrees &=
        mine.w1 == columns(whole.w1, 2 * rank, 2) && mine.w2 == rows(whole.w2, 2 * rank, 2);
  }
  split.all_reduce(y.size());   // g: the sum of both ranks' products, in forward
  split.all_reduce(dx.size());  // f: the sum of both gradients of x, in backward
  Matrix h = product(kX, kW1);
  for (double& v : h.numbers) v = std::max(v, 0.0);
  split_agrees &= y == product(h, kW2) && dx == whole.x;

  std::printf("16 parameters, AdamW, two ranks, four samples: numbers on a rank\n");
  std::printf("              parameters  gradients   state  together  most in a step   sends\n");
  Meter ddp, zero1, zero2, zero3;
  ddp.hold(16 + 16 + 32);
  ddp.all_reduce(16);
  ddp.print("DDP", 16, 16, 32);
  zero1.hold(16 + 16 + 16);
  zero1.reduce_scatter(16), zero1.all_gather(16);
  zero1.print("ZeRO-1", 16, 16, 16);
  zero2.hold(16 + 16);
  for (int layer = 0; layer < 2; ++layer) {
    zero2.hold(8);  // a layer's whole gradient, until the rank has its half of the sum
    zero2.reduce_scatter(8), zero2.free(4);
  }
  zero2.all_gather(16);
  zero2.print("ZeRO-2", 16, 8, 16);
  zero_3(zero3, false);
  zero3.print("ZeRO-3", 8, 8, 16);
  split.print("tensor split", 8, 8, 16);
  std::printf("gradients as on one rank: data parallel %s, split %s\n", data_agrees ? "yes" : "no",
              split_agrees ? "yes" : "no");

  std::printf("a step of ZeRO-3\n");
  Meter again;
  zero_3(again, true);
}
