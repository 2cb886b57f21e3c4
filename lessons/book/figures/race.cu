#include "kernels/cuda/launch.hpp"
#include "lessons/book/figures/race.hpp"

namespace ringsmith::book {

namespace {

struct Log {
  Moment* moments;
  int* count;
  __device__ void note(int thread, What what, int place, int value) const {
    moments[atomicAdd(count, 1)] = {thread, what, place, value};
  }
};

__global__ void neighbours(Log log, bool waits) {
  __shared__ int left_here[kMostThreads];
  const int t = static_cast<int>(threadIdx.x), n = static_cast<int>(blockDim.x);
  left_here[t] = number_of(t);
  log.note(t, What::writes, t, left_here[t]);
  if (waits) {
    log.note(t, What::waits, 0, 0);
    __syncthreads();
    log.note(t, What::passes, 0, 0);
  }
  const int next = (t + 1) % n;
  log.note(t, What::reads, next, left_here[next]);
}

}  // namespace

std::vector<Moment> record_race(int threads, bool barrier) {
  cudaStream_t stream = nullptr;
  cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Log log{};
  const std::size_t most = static_cast<std::size_t>(threads) * 4;
  cuda_check(cudaMalloc(&log.moments, most * sizeof(Moment)));
  cuda_check(cudaMalloc(&log.count, sizeof(int)));
  cuda_check(cudaMemsetAsync(log.count, 0, sizeof(int), stream));
  launch(neighbours, 1, static_cast<unsigned>(threads), 0, stream, log, barrier);
  int count = 0;
  cuda_check(cudaMemcpyAsync(&count, log.count, sizeof count, cudaMemcpyDeviceToHost, stream));
  cuda_check(cudaStreamSynchronize(stream));
  std::vector<Moment> moments(static_cast<std::size_t>(count));
  cuda_check(cudaMemcpyAsync(moments.data(), log.moments, moments.size() * sizeof(Moment),
                             cudaMemcpyDeviceToHost, stream));
  cuda_check(cudaStreamSynchronize(stream));
  cuda_check(cudaFree(log.moments));
  cuda_check(cudaFree(log.count));
  cuda_check(cudaStreamDestroy(stream));
  return moments;
}

}  // namespace ringsmith::book
