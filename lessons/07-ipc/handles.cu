// Lesson 07: IPC memory handles. The second of two processes writes into the memory of the first;
// the first also tries to open its own handle.
#include <cstdio>
#include <cstring>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cuda/launch.hpp"
#include "runtime/device/memory.hpp"

using namespace ringsmith;

namespace {

struct Offer {
  cudaIpcMemHandle_t handle;
  std::uint64_t offset;
};

__global__ void write(int* x, int value) { *x = value; }

Offer offer(void* memory) {
  Offer o{};
  cuda_check(cudaIpcGetMemHandle(&o.handle, memory));
  o.offset = reinterpret_cast<std::uintptr_t>(memory) - driver_block_of(memory).base;
  return o;
}
template <class T>
void send(int wire, const T& value) {
  if (::send(wire, &value, sizeof value, 0) != sizeof value) throw Error("the other has gone");
}
template <class T>
T receive(int wire) {
  T value{};
  if (::recv(wire, &value, sizeof value, MSG_WAITALL) != sizeof value)
    throw Error("the other has gone");
  return value;
}
cudaStream_t stream_on(int device) {
  cudaStream_t stream = nullptr;
  cuda_check(cudaSetDevice(device));
  cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

int exporter(int wire) {
  const cudaStream_t stream = stream_on(0);
  int *first = nullptr, *second = nullptr;
  cuda_check(cudaMalloc(&first, sizeof *first));
  cuda_check(cudaMalloc(&second, sizeof *second));
  const Offer one = offer(first), two = offer(second);
  std::printf("rank 0: two arrays, %s handle, different offsets: %s\n",
              std::memcmp(&one.handle, &two.handle, sizeof one.handle) == 0 ? "one" : "another",
              one.offset != two.offset ? "yes" : "no");
  void* base = nullptr;
  const bool own =
      cudaIpcOpenMemHandle(&base, one.handle, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess;
  std::printf("rank 0: may I open my own handle? %s\n", own ? "yes" : "no");
  std::fflush(stdout);
  send(wire, one);
  send(wire, two);
  (void)receive<int>(wire);
  int got = 0;
  cuda_check(cudaMemcpyAsync(&got, second, sizeof got, cudaMemcpyDeviceToHost, stream));
  cuda_check(cudaStreamSynchronize(stream));
  std::printf("rank 0: my second array holds %d\n", got);
  return 0;
}

int importer(int wire) {
  const cudaStream_t stream = stream_on(1);
  const Offer one = receive<Offer>(wire), two = receive<Offer>(wire);
  void *base = nullptr, *again = nullptr;
  cuda_check(cudaIpcOpenMemHandle(&base, one.handle, cudaIpcMemLazyEnablePeerAccess));
  cuda_check(cudaIpcOpenMemHandle(&again, two.handle, cudaIpcMemLazyEnablePeerAccess));
  std::printf("rank 1: both handles give %s address\n", base == again ? "the same" : "another");
  launch(write, 1, 1, 0, stream, reinterpret_cast<int*>(static_cast<char*>(again) + two.offset),
         42);
  cuda_check(cudaStreamSynchronize(stream));
  cuda_check(cudaIpcCloseMemHandle(base));
  cuda_check(cudaIpcCloseMemHandle(again));
  std::fflush(stdout);
  send(wire, 1);
  return 0;
}

}  // namespace

int main() {
  int wires[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, wires) != 0) return 1;
  const pid_t child = ::fork();  // before either process uses CUDA
  if (child == 0) {
    const int code = importer(wires[1]);
    std::fflush(stdout);
    ::_exit(code);
  }
  const int code = exporter(wires[0]);
  ::waitpid(child, nullptr, 0);
  return code;
}
