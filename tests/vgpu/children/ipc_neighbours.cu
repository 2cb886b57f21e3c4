// Scenarios of ipc.cu with processes that have no right to the memory.
#include "tests/support/neighbours.hpp"
#include "tests/vgpu/children/offer.hpp"
#include "tests/vgpu/children/pair.hpp"
#include "tests/vgpu/support.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;

namespace {
constexpr int kCount = 1000;
}

// A process that has the handle, but runs as another user.
int stranger_imports() {
  return run_pair(
      "ipc",
      [](Wire wire, pid_t) {
        DeviceArray<int> x(kCount);
        wire.send(offer(x.data()));
        (void)wire.receive<int>();
      },
      [](Wire wire) {
        const auto o = wire.receive<Offer>();
        expect(become_nobody(), "root");
        void* base = nullptr;
        expect(cudaIpcOpenMemHandle(&base, o.handle, cudaIpcMemLazyEnablePeerAccess) ==
                   cudaErrorMapBufferObjectFailed,
               "another user gets nothing");
        wire.send(1);
      });
}
int stranger_exports() {
  return run_pair(
      "ipc",
      [](Wire wire, pid_t) {
        expect(become_nobody(), "root");
        DeviceArray<int> x(kCount);
        wire.send(offer(x.data()));
        (void)wire.receive<int>();
      },
      [](Wire wire) {
        const auto o = wire.receive<Offer>();
        void* base = nullptr;
        expect(cudaIpcOpenMemHandle(&base, o.handle, cudaIpcMemLazyEnablePeerAccess) ==
                   cudaErrorMapBufferObjectFailed,
               "nothing is taken from another user");
        wire.send(1);
      });
}

// A handle whose secret word is wrong in one bit opens nothing. The right handle opens the memory,
// although there are more silent connections than the exporter keeps.
int guessed() {
  return run_pair(
      "ipc",
      [](Wire wire, pid_t) {
        DeviceArray<int> x(kCount);
        wire.send(offer(x.data()));
        wire.send(::getpid());
        (void)wire.receive<int>();
      },
      [](Wire wire) {
        const auto o = wire.receive<Offer>();
        const auto names = sockets_named("vgpu." + std::to_string(wire.receive<pid_t>()) + ".");
        expect(names.size() == 1, "one socket");
        for (int n = 0; n < 100; ++n)
          expect(abstract_socket(*names.begin(), ::connect) >= 0, "a silent connection");
        constexpr int kWordAt = 16;  // ipc.cpp: a tag, the process and the nonce precede it
        auto wrong = o.handle;
        wrong.reserved[kWordAt] = static_cast<char>(wrong.reserved[kWordAt] ^ 1);
        void* base = nullptr;
        expect(cudaIpcOpenMemHandle(&base, wrong, cudaIpcMemLazyEnablePeerAccess) ==
                   cudaErrorMapBufferObjectFailed,
               "a guessed word opens nothing");
        (void)open_handle(o);
        wire.send(1);
      });
}
