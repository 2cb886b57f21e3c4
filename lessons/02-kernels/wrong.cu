// Lesson 02: mistakes that a result may not show. `lesson02_wrong barrier`: each of 64 threads
// leaves a number in shared memory and reads its neighbour's, with and without a barrier in
// between. `lesson02_wrong nan`: the maximum of three numbers, one of which is NaN.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "kernels/cuda/launch.hpp"

using namespace ringsmith;

namespace {

constexpr int kThreads = 64;

__global__ void neighbours(int* out, int plus, bool waits) {
  __shared__ int left_here[kThreads];
  const int t = static_cast<int>(threadIdx.x);
  left_here[t] = t + plus;
  if (waits) __syncthreads();
  out[t] = left_here[(t + 1) % kThreads];
}

// how: 0: b > a ? b : a   1: a > b ? a : b   2: fmaxf   3: the runtime's
__global__ void maximum(const float* x, int n, float* out) {
  const int how = static_cast<int>(threadIdx.x);
  float a = x[0];
  for (int i = 1; i < n; ++i) {
    const float b = x[i];
    if (how == 0) a = b > a ? b : a;
    if (how == 1) a = a > b ? a : b;
    if (how == 2) a = fmaxf(a, b);
    if (how == 3) a = a > b || a != a ? a : b;
  }
  out[how] = a;
}

void barrier(cudaStream_t stream) {
  int* out = nullptr;
  cuda_check(cudaMalloc(&out, kThreads * sizeof(int)));
  for (const bool waits : {true, false}) {
    const int plus = waits ? 1000 : 2000;  // shared memory may hold the previous kernel's numbers
    launch(neighbours, 1, kThreads, 0, stream, out, plus, waits);
    std::vector<int> got(kThreads);
    cuda_check(
        cudaMemcpyAsync(got.data(), out, kThreads * sizeof(int), cudaMemcpyDeviceToHost, stream));
    cuda_check(cudaStreamSynchronize(stream));
    int wrong = 0;
    for (int t = 0; t < kThreads; ++t)
      wrong += static_cast<int>(got[static_cast<std::size_t>(t)] != (t + 1) % kThreads + plus);
    std::printf("%s barrier: %d of %d wrong\n", waits ? "with" : "without", wrong, kThreads);
  }
}

void nan(cudaStream_t stream) {
  float *x = nullptr, *out = nullptr;
  cuda_check(cudaMalloc(&x, 3 * sizeof(float)));
  cuda_check(cudaMalloc(&out, 4 * sizeof(float)));
  std::printf("                         5 2 nan   5 nan 2   nan 5 2\n");
  std::vector<std::vector<float>> got;
  for (const std::vector<float>& order :
       {std::vector<float>{5, 2, NAN}, {5, NAN, 2}, {NAN, 5, 2}}) {
    cuda_check(cudaMemcpyAsync(x, order.data(), 3 * sizeof(float), cudaMemcpyHostToDevice, stream));
    launch(maximum, 1, 4, 0, stream, x, 3, out);
    got.emplace_back(4);
    cuda_check(
        cudaMemcpyAsync(got.back().data(), out, 4 * sizeof(float), cudaMemcpyDeviceToHost, stream));
    cuda_check(cudaStreamSynchronize(stream));
  }
  const char* const names[] = {"b > a ? b : a", "a > b ? a : b", "fmaxf(a, b)",
                               "a > b || a != a ? a : b"};
  for (std::size_t how = 0; how < 4; ++how) {
    std::printf("%-23s", names[how]);
    for (const auto& results : got)
      std::printf(" %8s",
                  std::isnan(results[how]) ? "nan" : std::to_string(int(results[how])).c_str());
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  cudaStream_t stream = nullptr;
  cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "barrier") {
    barrier(stream);
  } else if (what == "nan") {
    nan(stream);
  } else {
    std::fprintf(stderr, "lesson02_wrong: say 'barrier' or 'nan'\n");
    return 6;
  }
  return 0;
}
