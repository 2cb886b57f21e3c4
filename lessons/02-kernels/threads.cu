// Lesson 02: six numbers and four threads: which thread computes which element of y = 2 x + y, and
// how the sum of six numbers forms in shared memory. The order of the threads changes nothing.
#include <cstdio>
#include <vector>

#include "kernels/cuda/launch.hpp"

using namespace ringsmith;

namespace {

constexpr int kCount = 6, kBlocks = 2, kThreads = 2, kSteps = 3;

__global__ void axpy(int n, float a, const float* x, float* y, int* who, int* turn) {
  const int first = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int threads = static_cast<int>(gridDim.x * blockDim.x);
  for (int i = first; i < n; i += threads) {
    y[i] = a * x[i] + y[i];
    who[i] = first;
    turn[i] = (i - first) / threads;
  }
}

__global__ void axpy_without_loop(int n, float a, const float* x, float* y) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = a * x[i] + y[i];
}

// seen[step] receives the shared array after the barrier of that step.
__global__ void sum(int n, const float* x, float* seen) {
  __shared__ float part[kBlocks * kThreads];
  const int t = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  part[t] = 0;
  for (int i = t; i < n; i += threads) part[t] += x[i];
  __syncthreads();
  seen[t] = part[t];
  for (int half = threads / 2, step = 1; half > 0; half /= 2, ++step) {
    if (t < half) part[t] += part[t + half];
    __syncthreads();
    seen[step * threads + t] = part[t];
  }
}

template <class T>
std::vector<T> host(const T* from, int n, cudaStream_t stream) {
  std::vector<T> values(static_cast<std::size_t>(n));
  cuda_check(cudaMemcpyAsync(values.data(), from, values.size() * sizeof(T), cudaMemcpyDeviceToHost,
                             stream));
  cuda_check(cudaStreamSynchronize(stream));
  return values;
}
template <class T>
T* device(const std::vector<T>& values, cudaStream_t stream) {
  T* to = nullptr;
  cuda_check(cudaMalloc(&to, values.size() * sizeof(T)));
  cuda_check(cudaMemcpyAsync(to, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice,
                             stream));
  cuda_check(cudaStreamSynchronize(stream));
  return to;
}
void print(const char* name, const float* values, int n) {
  std::printf("  %-13s", name);
  for (int i = 0; i < n; ++i) std::printf(" %3g", static_cast<double>(values[i]));
  std::printf("\n");
}

}  // namespace

int main() {
  cudaStream_t stream = nullptr;
  cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const std::vector<float> numbers{1, 2, 3, 4, 5, 6}, tens{10, 20, 30, 40, 50, 60};
  float *const x = device(numbers, stream), *const y = device(tens, stream);
  int *const who = device(std::vector<int>(kCount), stream), *const turn = device(
                                                                 std::vector<int>(kCount), stream);
  launch(axpy, kBlocks, kThreads, 0, stream, kCount, 2, x, y, who, turn);
  std::printf("6 elements, a grid of 2 blocks of 2 threads\n");
  const auto by = host(who, kCount, stream), when = host(turn, kCount, stream);
  for (std::size_t i = 0; i < by.size(); ++i)
    std::printf("  element %zu: block %d, thread %d, turn %d\n", i, by[i] / kThreads,
                by[i] % kThreads, when[i]);
  std::printf("y = 2 x + y\n");
  print("x", numbers.data(), kCount);
  print("y before", tens.data(), kCount);
  print("y after", host(y, kCount, stream).data(), kCount);
  float* const again = device(tens, stream);
  launch(axpy_without_loop, kBlocks, kThreads, 0, stream, kCount, 2, x, again);
  print("without loop", host(again, kCount, stream).data(), kCount);

  constexpr int kTeam = kBlocks * kThreads;
  float* const seen = device(std::vector<float>(kSteps * kTeam), stream);
  launch(sum, 1, kTeam, 0, stream, kCount, x, seen);
  const auto parts = host(seen, kSteps * kTeam, stream);
  std::printf("the sum of x by a block of 4 threads: what is in shared memory\n");
  const char* const names[] = {"own shares", "half of 4: 2", "half of 2: 1"};
  for (int step = 0; step < kSteps; ++step)
    print(names[step], &parts[std::size_t(step * kTeam)], kTeam >> step);
  return 0;
}
