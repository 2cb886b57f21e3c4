// Lesson 07: two virtual devices pass three messages through two slots. Each step is a kernel,
// one after the other, so that the counters can be read in between. In the runtime, both sides
// run simultaneously and wait for the counters; here, the order of the program replaces the
// waits.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "kernels/cuda/launch.hpp"

using namespace ringsmith;

namespace {

constexpr std::uint64_t kSlots = 2;

struct Station {  // in the receiver's memory; the sender's device reaches it
  std::uint64_t tail, head;
  int slot[kSlots];
};

__global__ void put(Station* theirs, int value) { theirs->slot[theirs->tail % kSlots] = value; }
__global__ void post(Station* theirs) { ++theirs->tail; }
__global__ void take(Station* mine, int* sum) { *sum += mine->slot[mine->head % kSlots]; }
__global__ void give_back(Station* mine) { ++mine->head; }

struct Device {
  int index;
  cudaStream_t stream = nullptr;
  explicit Device(int i) : index(i) {
    cuda_check(cudaSetDevice(i));
    cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  template <class... Parameters, class... Arguments>
  void run(void (*kernel)(Parameters...), Arguments... arguments) const {
    cuda_check(cudaSetDevice(index));
    launch(kernel, 1, 1, 0, stream, arguments...);
    cuda_check(cudaStreamSynchronize(stream));
  }
};

}  // namespace

int main() {
  const Device receiver(1), sender(0);
  cuda_check(cudaDeviceEnablePeerAccess(1, 0));  // device 0, the current one, reaches device 1
  cuda_check(cudaSetDevice(1));
  Station* station = nullptr;
  int* sum = nullptr;
  cuda_check(cudaMalloc(&station, sizeof *station));
  cuda_check(cudaMalloc(&sum, sizeof *sum));
  cuda_check(cudaMemsetAsync(station, 0, sizeof *station, receiver.stream));
  cuda_check(cudaMemsetAsync(sum, 0, sizeof *sum, receiver.stream));
  cuda_check(cudaStreamSynchronize(receiver.stream));
  int step = 0;
  const auto show = [&](const char* who, const char* what) {
    Station s{};
    int so_far = 0;
    cuda_check(cudaMemcpyAsync(&s, station, sizeof s, cudaMemcpyDeviceToHost, receiver.stream));
    cuda_check(
        cudaMemcpyAsync(&so_far, sum, sizeof so_far, cudaMemcpyDeviceToHost, receiver.stream));
    cuda_check(cudaStreamSynchronize(receiver.stream));
    std::printf("  %2d  %s %-22s  tail %d  head %d  sum %3d\n", ++step, who, what,
                static_cast<int>(s.tail), static_cast<int>(s.head), so_far);
  };
  std::printf("three messages through two slots\n");
  const auto send = [&](int value, const char* stores, const char* posts) {
    sender.run(put, station, value);
    show("rank 0", stores);
    sender.run(post, station);
    show("rank 0", posts);
  };
  const auto receive = [&](const char* takes, const char* frees) {
    receiver.run(take, station, sum);
    show("rank 1", takes);
    receiver.run(give_back, station);
    show("rank 1", frees);
  };
  send(7, "stores 7 in slot 0", "tail = 1");
  send(20, "stores 20 in slot 1", "tail = 2");
  receive("loads slot 0", "head = 1: room again");
  send(300, "stores 300 in slot 0", "tail = 3");
  receive("loads slot 1", "head = 2");
  receive("loads slot 0", "head = 3");
  return 0;
}
