// Tests IPC handles between two processes: `ipc SCENARIO` exits with 0 if all went well.
#include <cstring>
#include <cuda.h>
#include <signal.h>
#include <string>
#include <vector>

#include "tests/vgpu/children/offer.hpp"
#include "tests/vgpu/children/pair.hpp"
#include "tests/vgpu/support.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;

namespace {

constexpr int kCount = 1000, kRounds = 50;

__global__ void fill(int* x, int n, int first) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x))
    x[i] = first + i;
}

__global__ void doze(int ms) {
  for (int i = 0; i < ms * 10; ++i) __nanosleep(100'000);
}

// The importer's kernel writes to both of the exporter's arrays.
int write_both(int importer_device) {
  return run_pair(
      "ipc",
      [](Wire wire, pid_t) {
        TestStream stream;
        DeviceArray<int> first(kCount), second(kCount);  // they share a block
        wire.send(offer(first.data()));
        wire.send(offer(second.data()));
        expect(wire.receive<int>() == 1, "the importer has written");
        const auto one = first.host(stream.get()), two = second.host(stream.get());
        for (int i = 0; i < kCount; ++i) {
          expect(one[std::size_t(i)] == 100 + i, "first array written");
          expect(two[std::size_t(i)] == 5000 + i, "second array written");
        }
      },
      [=](Wire wire) {
        cuda_check(cudaSetDevice(importer_device));
        TestStream stream;
        const auto a = wire.receive<Offer>(), b = wire.receive<Offer>();
        expect(a.offset != b.offset, "two allocations of one block have different offsets");
        std::byte* one = open_handle(a);
        std::byte* two = open_handle(b);
        expect(one == two, "a block that is opened twice has one address");
        launch(fill, 1, 64, 0, stream.get(), reinterpret_cast<int*>(one + a.offset), kCount, 100);
        launch(fill, 1, 64, 0, stream.get(), reinterpret_cast<int*>(two + b.offset), kCount, 5000);
        stream.synchronize();
        cuda_check(cudaIpcCloseMemHandle(one));
        launch(fill, 1, 1, 0, stream.get(), reinterpret_cast<int*>(two + b.offset), 1, 5000);
        stream.synchronize();  // still open, because it was opened twice
        cuda_check(cudaIpcCloseMemHandle(two));
        expect(cudaIpcCloseMemHandle(two) == cudaErrorInvalidValue, "closed twice is enough");
        wire.send(1);
      });
}

int own_handle() {
  return run_main("ipc", [] {
    DeviceArray<int> x(8);
    const Offer o = offer(x.data());
    void* base = nullptr;
    cuda_check(cudaIpcOpenMemHandle(&base, o.handle, cudaIpcMemLazyEnablePeerAccess));
    return 0;
  });
}

// A large allocation begins at its block's base.
int large() {
  return run_main("ipc", [] {
    DeviceArray<int> x((3 << 20) + 1);
    expect(offer(x.data()).offset == 0, "offset 0");
    return 0;
  });
}

int after_free() {
  return run_pair(
      "ipc",
      [](Wire wire, pid_t) {
        Offer o{};
        {
          DeviceArray<int> x(3 << 20);
          o = offer(x.data());
        }
        wire.send(o);
        (void)wire.receive<int>();
      },
      [](Wire wire) {
        const auto o = wire.receive<Offer>();
        void* base = nullptr;
        const auto code = cudaIpcOpenMemHandle(&base, o.handle, cudaIpcMemLazyEnablePeerAccess);
        expect(code == cudaErrorMapBufferObjectFailed, "freed memory is not opened");
        wire.send(1);
      });
}

int events() {
  return run_pair(
      "ipc",
      [](Wire wire, pid_t) {
        TestStream stream;
        DeviceArray<int> x(kCount);
        cudaEvent_t mine = nullptr, plain = nullptr;
        cuda_check(cudaEventCreateWithFlags(&mine, cudaEventDisableTiming | cudaEventInterprocess));
        cuda_check(cudaEventCreateWithFlags(&plain, cudaEventDisableTiming));
        cudaIpcEventHandle_t handle;
        expect(cudaIpcGetEventHandle(&handle, plain) == cudaErrorInvalidResourceHandle,
               "an ordinary event has no handle");
        cuda_check(cudaIpcGetEventHandle(&handle, mine));
        wire.send(handle);
        wire.send(offer(x.data()));
        for (int round = 0; round < kRounds; ++round) {
          launch(fill, 1, 64, 0, stream.get(), x.data(), kCount, round);
          cuda_check(cudaEventRecord(mine, stream.get()));
          wire.send(round);  // recorded: the other process may wait for it now
          (void)wire.receive<int>();
        }
        cuda_check(cudaEventDestroy(mine));
        cuda_check(cudaEventDestroy(plain));
      },
      [](Wire wire) {
        TestStream stream;
        cudaEvent_t theirs = nullptr;
        cuda_check(cudaIpcOpenEventHandle(&theirs, wire.receive<cudaIpcEventHandle_t>()));
        const auto o = wire.receive<Offer>();
        std::byte* base = open_handle(o);
        for (int round = 0; round < kRounds; ++round) {
          expect(wire.receive<int>() == round, "in step");
          std::vector<int> got(kCount);
          cuda_check(cudaStreamWaitEvent(stream.get(), theirs));
          cuda_check(cudaMemcpyAsync(got.data(), base + o.offset, kCount * sizeof(int),
                                     cudaMemcpyDeviceToHost, stream.get()));
          stream.synchronize();
          for (int i = 0; i < kCount; ++i)
            expect(got[std::size_t(i)] == round + i, "what came before the event is there");
          expect(cudaEventQuery(theirs) == cudaSuccess, "the event has been reached");
          wire.send(1);
        }
        // A stream that has not reached an event keeps the resources of the event.
        launch(doze, 1, 1, 0, stream.get(), 20);
        cuda_check(cudaStreamWaitEvent(stream.get(), theirs));
        cuda_check(cudaEventRecord(theirs, stream.get()));
        cuda_check(cudaEventDestroy(theirs));
        stream.synchronize();
      });
}

// The exporter is killed. Memory that is open stays readable, but nothing more can be opened.
int killed() {
  return run_pair(
      "ipc",
      [](Wire wire, pid_t) {
        const pid_t victim = wire.receive<pid_t>();
        (void)wire.receive<int>();
        ::kill(victim, SIGKILL);
        std::printf("%d\n", victim);
        wire.send(1);
        expect(wire.receive<int>() == 1, "the importer lives on");
      },
      [](Wire wire) {
        int sockets[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) throw Error("no socket");
        const pid_t exporter = ::fork();
        if (exporter == 0) {
          const Wire to(sockets[1]);
          TestStream stream;
          DeviceArray<int> x(std::vector<int>{41, 42, 43}, stream.get()), y(3 << 20);
          to.send(offer(x.data()));
          to.send(offer(y.data()));
          for (;;) ::pause();
        }
        const Wire from(sockets[0]);
        const auto x = from.receive<Offer>(), y = from.receive<Offer>();
        std::byte* base = open_handle(x);
        wire.send(exporter);
        wire.send(1);
        (void)wire.receive<int>();
        ::waitpid(exporter, nullptr, 0);
        TestStream stream;
        int got = 0;
        cuda_check(cudaMemcpyAsync(&got, base + x.offset + sizeof(int), sizeof got,
                                   cudaMemcpyDeviceToHost, stream.get()));
        stream.synchronize();
        expect(got == 42, "memory of a dead process that was opened before");
        void* other = nullptr;
        expect(cudaIpcOpenMemHandle(&other, y.handle, cudaIpcMemLazyEnablePeerAccess) ==
                   cudaErrorMapBufferObjectFailed,
               "a dead process gives nothing");
        wire.send(1);
      });
}

}  // namespace

// Defined in ipc_neighbours.cu.
int stranger_imports();
int stranger_exports();
int guessed();

int main(int argc, char** argv) {
  const std::string scenario = argc > 1 ? argv[1] : "";
  if (scenario == "other_device") return write_both(1);
  if (scenario == "same_device") return write_both(0);
  if (scenario == "own_handle") return own_handle();
  if (scenario == "large") return large();
  if (scenario == "after_free") return after_free();
  if (scenario == "events") return events();
  if (scenario == "killed") return killed();
  if (scenario == "stranger_imports") return stranger_imports();
  if (scenario == "stranger_exports") return stranger_exports();
  if (scenario == "guessed") return guessed();
  std::fprintf(stderr, "ipc: no scenario '%s'\n", scenario.c_str());
  return 6;
}
