// Engine A: the host drives. Each move of the plan becomes a copy or one short kernel on the
// group's stream, which reads and writes the peers' memory directly; streams wait for each other by
// events (hand_off.hpp). It serves every collective and any number of ranks on one device, because
// nothing on the device ever spins.
//
// It is the executor of executor/mapped.hpp with a device's hands: where all buffers are
// communication memory, a message is a peer's read or write of the buffer itself. Elsewhere, and
// for schedules that cannot run in place, the data goes through staging memory, a slice of every
// chunk at a time:
//
//     caller's input --copy--> staging input ==moves of all ranks==> staging output --copy-->
//     output
//
// so that the order of the sums, which hangs on chunks, is the same.
#pragma once

#include "runtime/comm/device/device_arena.hpp"
#include "runtime/comm/device/hand_off.hpp"
#include "runtime/comm/executor/library.hpp"
#include "runtime/comm/executor/sharing.hpp"

namespace ringsmith::comm::cuda_ipc {

class EngineA {
 public:
  EngineA(Host& host, RollCall& roll_call, Peers& peers, DeviceArena& arena, HandOff& hand_off);

  // After the completed roll call of this transfer, before which every rank has recorded
  // kReadyEvent. Enqueues on the calling thread's current stream.
  void run(const Transfer& transfer, const Sharing& sharing, const Buffers& buffers);

 private:
  // Where a Place is, and how many elements of the move there are.
  struct View {
    const Buffers& input_output;
    std::size_t slice = 0;  // elements set aside for a chunk; 0: places are in the callers' buffers
    std::size_t skipped = 0;  // elements of every chunk that earlier slices have done
  };
  void run_moves(const Prepared& prepared, const Mapping& mapping, const Transfer& transfer,
                 const View& view, std::uint64_t base);
  void run_staged(Prepared& prepared, const Transfer& transfer);
  void reserve_staging();

  Host& host_;
  RollCall& roll_call_;
  Peers& peers_;
  DeviceArena& arena_;
  HandOff& hand_off_;
  Library library_;
  std::shared_ptr<CommMemory> staging_input_, staging_output_;
};

// Which schedule a call on device memory runs, on this engine; engine B computes the same sums.
[[nodiscard]] std::string_view device_algorithm(const Call& call, int world);

}  // namespace ringsmith::comm::cuda_ipc
