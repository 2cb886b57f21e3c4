#include <functional>
#include <string>

#include "kernels/mode.hpp"
#include "runtime/autograd/functions.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/gradcheck.hpp"

using namespace ringsmith;
using test::gradcheck;
using test::on_device;
using test::spread_values;
using Inputs = std::vector<Tensor>;

TEST_CASE("gradients of conv2d are slopes, for odd shapes, strides, padding, dilation and groups") {
  struct Case {
    Shape x, weight;
    Pair stride, padding, dilation;
    std::int64_t groups;
    bool bias;
  };
  const std::vector<Case> cases{
      {{2, 3, 5, 4}, {2, 3, 3, 2}, {1, 1}, {0, 0}, {1, 1}, 1, true},
      {{1, 2, 5, 7}, {3, 2, 2, 3}, {2, 3}, {1, 2}, {1, 1}, 1, false},
      {{1, 2, 7, 6}, {2, 2, 3, 2}, {1, 2}, {2, 0}, {2, 3}, 1, true},
      {{2, 4, 4, 5}, {6, 2, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 2, true},
      {{1, 3, 3, 3}, {3, 1, 1, 1}, {1, 1}, {0, 0}, {1, 1}, 3, false},
  };
  for (const Case& c : cases) {
    INFO("x " << to_string(c.x) << " weight " << to_string(c.weight));
    const Inputs inputs{spread_values(c.x, 1), spread_values(c.weight, 2),
                        c.bias ? spread_values({c.weight[0]}, 3) : Tensor()};
    CHECK(gradcheck(
              [&](const Inputs& in) {
                return conv2d(in[0], in[1], in[2], c.stride, c.padding, c.dilation, c.groups);
              },
              inputs) == "");
  }
}

TEST_CASE("gradients of pooling are slopes") {
  for (const Pair kernel : {Pair{2, 2}, Pair{3, 2}, Pair{1, 3}})
    for (const Pair stride : {Pair{1, 1}, Pair{2, 3}})
      for (const Pair padding : {Pair{0, 0}, Pair{kernel.h / 2, kernel.w / 2}}) {
        INFO("window " << kernel.h << "x" << kernel.w << " stride " << stride.h << "x" << stride.w);
        CHECK(
            gradcheck([&](const Inputs& in) { return max_pool2d(in[0], kernel, stride, padding); },
                      {spread_values({2, 2, 5, 7}, 4)}) == "");
        for (const bool count_pad : {true, false})
          CHECK(gradcheck(
                    [&](const Inputs& in) {
                      return avg_pool2d(in[0], kernel, stride, padding, count_pad);
                    },
                    {spread_values({1, 3, 5, 7}, 5)}) == "");
      }
  CHECK(gradcheck([](const Inputs& in) { return global_avg_pool2d(in[0]); },
                  {spread_values({2, 3, 3, 5}, 6)}) == "");
}

TEST_CASE("gradients of batch_norm are slopes, through the batch statistics too") {
  const auto oracle_and_fast = {kernels::Mode::oracle, kernels::Mode::fast};
  for (const kernels::Mode mode : oracle_and_fast)
    for (const bool training : {true, false})
      for (const Shape& shape : {Shape{5, 3}, Shape{2, 3, 3, 4}}) {
        INFO("x " << to_string(shape) << (training ? " training" : " evaluation"));
        kernels::set_mode(mode);
        CHECK(gradcheck(
                  [&](const Inputs& in) {  // fresh running statistics for each call
                    const TensorOptions like = in[0].options();
                    return batch_norm(in[0], in[1], in[2], full({3}, 0.2, like),
                                      full({3}, 0.7, like), training);
                  },
                  {spread_values(shape, 7), spread_values({3}, 8), spread_values({3}, 9)}) == "");
        kernels::set_mode(kernels::Mode::fast);
      }
}

TEST_CASE("functions on images accept strided inputs and gradients") {
  const Tensor x = on_device(spread_values({2, 3, 6, 5}, 1));
  const Tensor w = on_device(spread_values({4, 3, 3, 3}, 2));
  const Tensor turned = x.transpose(2, 3).contiguous().transpose(2, 3);
  REQUIRE(!turned.is_contiguous());
  CHECK(conv2d(turned, w, {}).to_vector<double>() == conv2d(x, w, {}).to_vector<double>());
  // A transposed gradient must work like its contiguous copy.
  const auto gradients = [&](const Tensor& dy) {
    const Tensor in = x.clone(), kernel = w.clone();
    in.requires_grad_();
    kernel.requires_grad_();
    max_pool2d(conv2d(in, kernel, {}), {2, 2}, {1, 1}).backward(dy);
    std::vector<double> all = in.grad().to_vector<double>();
    for (const double v : kernel.grad().to_vector<double>()) all.push_back(v);
    return all;
  };
  const Tensor dy = on_device(spread_values({2, 4, 2, 3}, 5).transpose(2, 3));
  REQUIRE(!dy.is_contiguous());
  CHECK(gradients(dy) == gradients(dy.contiguous()));
}

TEST_CASE("batch_norm moves its running statistics in training only, with the unbiased variance") {
  const Tensor x = on_device(from_vector<float>({1, 3, 5, 7}, {2, 2}));
  const Tensor one = on_device(ones({2})), zero = on_device(zeros({2}));
  const Tensor mean = on_device(zeros({2})), var = on_device(ones({2}));
  batch_norm(x, one, zero, mean, var, false, 0.5);
  CHECK(mean.to_vector<float>() == std::vector<float>{0, 0});
  batch_norm(x, one, zero, mean, var, true, 0.5);
  CHECK(mean.to_vector<float>() == std::vector<float>{1.5, 2.5});  // half of 3 and 5
  CHECK(var.to_vector<float>() == std::vector<float>{4.5, 4.5});   // (1 + 8) / 2
}

TEST_CASE("an empty batch passes through convolution and pooling") {
  const Tensor x = on_device(Tensor::empty({0, 2, 5, 5})), w = on_device(ones({3, 2, 3, 3}));
  w.requires_grad_();
  const Tensor y = conv2d(x, w, {});
  CHECK(y.sizes() == Shape{0, 3, 3, 3});
  y.backward(on_device(Tensor::empty({0, 3, 3, 3})));
  CHECK(w.grad().to_vector<float>() == std::vector<float>(54, 0));
  CHECK(max_pool2d(x, {2, 2}, {2, 2}).sizes() == Shape{0, 2, 2, 2});
}

TEST_CASE("shapes that do not fit are named in one line, with the remedy where there is one") {
  const Tensor x = ones({2, 4, 5, 5}), w = ones({6, 4, 3, 3}), v = ones({4});
  const auto says = [](const std::string& part, const std::function<void()>& f) {
    std::string message;
    try {
      f();
    } catch (const UsageError& e) {
      message = e.what();
    }
    INFO(message);
    CHECK(message.find(part) != std::string::npos);
    CHECK(message.find('\n') == std::string::npos);
  };
  says("conv2d: x must be (n, channels, height, width), got [4]", [&] { conv2d(v, w, {}); });
  says("weight is for 4 input channels, x has 2", [&] { conv2d(ones({1, 2, 5, 5}), w, {}); });
  says("groups must divide", [&] { conv2d(x, w, {}, {1, 1}, {0, 0}, {1, 1}, 3); });
  says("bias must have 6 elements, got [4]", [&] { conv2d(x, w, v); });
  says("stride 0x1", [&] { conv2d(x, w, {}, {0, 1}); });
  says("kernel is larger than the padded image", [&] { conv2d(ones({1, 4, 2, 5}), w, {}); });
  says("one dtype", [&] { conv2d(x, w.to(DType::f64), {}); });
  says("dtype i64, expected f32, f64, f16 or bf16",
       [&] { conv2d(x.to(DType::i64), w.to(DType::i64), {}); });
  says("max_pool2d: x must be", [&] { max_pool2d(v, {2, 2}, {2, 2}); });
  says("padding 2x0 must be between 0 and half the window", [&] {
    max_pool2d(x, {3, 3}, {1, 1}, {2, 0});
  });
  says("window 7x7 is larger", [&] { avg_pool2d(x, {7, 7}, {1, 1}); });
  says("global_avg_pool2d: x must be", [&] { global_avg_pool2d(v); });
  says("more than one value per channel", [&] { batch_norm(ones({1, 4}), v, v, v, v, true); });
  says("weight must hold 4 values", [&] { batch_norm(x, ones({3}), v, v, v, true); });
  says("x must be (n, channels)", [&] { batch_norm(v, v, v, v, v, true); });
}
