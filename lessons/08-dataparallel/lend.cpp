// lend: the runtime's DataParallel on three devices (all of them the CPU), with numbers small
// enough to follow by eye. One section for each argument: step, rows, forwards, fail.
#include <cstdio>
#include <cstring>
#include <string>

#include "runtime/autograd/engine.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/parallel/data_parallel.hpp"
#include "runtime/parallel/replicas.hpp"
#include "runtime/tensor/tensor.hpp"

using namespace ringsmith;

namespace {

// y = w x for each row; throws if it gets the row `poison`.
class Scale : public Module {
 public:
  Scale() { register_parameter("w", w, full({1}, 2.0)); }
  Tensor forward(const Tensor& x) override {
    for (const float row : x.to_vector<float>())
      if (row == poison) throw Error("row " + std::to_string(static_cast<int>(row)) + " is broken");
    return mul(x, w);
  }
  Tensor w;
  static inline float poison = 0;
};

std::string numbers(const Tensor& t) {
  std::string text;
  for (const float value : t.to_vector<float>())
    text += (text.empty() ? "" : " ") + std::to_string(static_cast<int>(value));
  return text;
}

DataParallel on_three(Scale& model) {
  return {model,
          [] { return std::make_unique<Scale>(); },
          {Device::cpu(), Device::cpu(), Device::cpu()}};
}

void print(const std::vector<LinkTraffic>& traffic) {
  for (std::size_t i = 1; i < traffic.size(); ++i)
    std::printf(
        "  root -> device %zu: parameters %2zu, rows %2zu, their gradients %2zu   "
        "device %zu -> root: outputs %2zu, gradients %2zu bytes\n",
        i, traffic[i].parameters.value, traffic[i].inputs.value, traffic[i].output_gradients.value,
        i, traffic[i].outputs.value, traffic[i].gradients.value);
}

// Replica 0 gets ones, replica 1 tens, replica 2 hundreds: the digits of a sum show the replicas
// in it.
void step() {
  Scale model;
  DataParallel parallel = on_three(model);
  const Tensor x = from_vector<float>({1, 2, 30, 40, 500, 600});
  const Tensor y = parallel.forward(x);
  std::printf("rows     %s\noutputs  %s\n", numbers(x).c_str(), numbers(y).c_str());
  sum(y).backward();
  std::printf("gradient of w, on the root: %s\n", numbers(model.w.grad()).c_str());
  print(parallel.traffic());
}

void rows() {
  for (const auto& [batch, devices] : {std::pair{8, 4}, {10, 4}, {5, 4}, {2, 4}}) {
    const auto starts = chunk_starts(batch, static_cast<std::size_t>(devices));
    std::printf("%2d rows on %d devices:", batch, devices);
    for (std::size_t i = 0; i + 1 < starts.size(); ++i)
      std::printf(" %d", static_cast<int>(starts[i + 1] - starts[i]));
    std::printf("\n");
  }
}

// Three forward passes without training, then a change of w and one more forward pass.
void forwards() {
  Scale model;
  DataParallel parallel = on_three(model);
  const Tensor x = from_vector<float>({1, 2, 30, 40, 500, 600});
  const NoGradGuard evaluating;
  for (int i = 1; i <= 3; ++i) {
    parallel.forward(x);
    std::printf("after forward %d: %zu bytes of parameters sent\n", i,
                parallel.root_traffic().parameters.value);
  }
  model.w.detach().fill_(3.0);
  std::printf("w is 3 now: %s\n", numbers(parallel.forward(x)).c_str());
}

void fail() {
  Scale model;
  DataParallel parallel = on_three(model);
  const Tensor x = from_vector<float>({1, 2, 30, 40, 500, 600});
  Scale::poison = 500;
  try {
    parallel.forward(x);
  } catch (const Error& error) {
    std::printf("%s\n", error.what());
  }
  Scale::poison = 0;
  std::printf("and then: %s\n", numbers(parallel.forward(x)).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const std::pair<const char*, void (*)()> sections[] = {
      {"step", step}, {"rows", rows}, {"forwards", forwards}, {"fail", fail}};
  for (const auto& [name, run] : sections)
    if (argc == 2 && std::strcmp(argv[1], name) == 0) return run(), 0;
  std::fprintf(stderr, "lend step | rows | forwards | fail\n");
  return 2;
}
