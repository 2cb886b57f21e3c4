// The stream engine. The host enqueues each move as a copy or a short kernel on the group's stream.
// Moves access the peers' memory directly, and streams wait for each other through events. The
// engine supports every collective and any number of ranks on one device, because nothing on the
// device spins.
//
// A hand-off makes a rank's stream wait for a point in another rank's stream:
//
//     rank 0   host:   enqueue move, record event 5, progress = 5
//              stream: ...[move 5] event 5 ........
//     rank 1   host:       wait until progress >= 5, enqueue wait(event 5), move, ...
//              stream:                          ........ wait [move that needs it]
//
// A counter in shared host memory tells the other ranks' hosts that an event has been recorded.
// Those hosts wait for the counter as transport/peers.hpp describes. The event makes the other
// streams wait until the move is done. Therefore no host waits for a device.
//
// Events are reused, so a wait may refer to a later record than intended. It cannot deadlock: every
// wait is enqueued after the record to which it refers, so waits cannot form a cycle.
#pragma once

#include "runtime/comm/device/device_memory.hpp"
#include "runtime/comm/executor/executors.hpp"
#include "runtime/comm/executor/schedule_cache.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith::comm::cuda_ipc {

class HandOff {
 public:
  HandOff(Peers& peers, DevicePeers& device_peers, Stream stream)
      : peers_(peers), device_peers_(device_peers), stream_(std::move(stream)) {}

  // A point in a rank's stream: the round of the agreement barrier, and the moves done in that
  // round.
  static constexpr std::uint64_t stamp(std::uint64_t round, std::uint64_t moves) {
    return round << 24 | moves;
  }
  void reach(std::uint64_t stamp);
  void wait_for(int rank, std::uint64_t stamp);

  // For events that hosts announce by other means, e.g. an agreement barrier or a message.
  void record(std::uint32_t event);
  void wait_for_event(int rank, std::uint32_t event);

 private:
  Peers& peers_;
  DevicePeers& device_peers_;
  Stream stream_;
};

// The counterpart of executor/mapped.cpp on streams. If all buffers are communication memory, peers
// access them directly. Otherwise, or if the schedule has no mapping for these buffers, the data
// passes through staging memory, one slice of every chunk at a time. Both ways sum in the same
// order. Staging:
//
//     input --copy--> staging input ==moves of all ranks==> staging output --copy--> output
class StreamEngine {
 public:
  StreamEngine(Peers& peers, AgreementBarrier& agreement, DevicePeers& device_peers,
               DeviceArena& arena, HandOff& hand_off);

  // Must be called after the agreement barrier of this transfer. Every rank must have recorded
  // kReadyEvent before that barrier. Enqueues on the calling thread's current stream.
  void run(const Choice& choice, const Transfer& transfer, const Sharing& sharing,
           const Buffers& buffers);

 private:
  // Determines the address of a ChunkPlace and the number of elements of a move.
  struct View {
    const Buffers& input_output;
    std::size_t slice = 0;    // elements reserved per chunk; 0: places are in the callers' buffers
    std::size_t skipped = 0;  // elements of every chunk that earlier slices have moved
  };
  struct StreamPlace;
  void run_mapped(const Prepared& prepared, const Mapping& mapping, const Transfer& transfer,
                  const View& view, std::uint64_t base);
  void run_staged(Prepared& prepared, const Transfer& transfer);
  void reserve_staging();

  Peers& peers_;
  AgreementBarrier& agreement_;
  DevicePeers& device_peers_;
  DeviceArena& arena_;
  HandOff& hand_off_;
  ScheduleCache schedules_;
  std::shared_ptr<CommMemory> staging_input_, staging_output_;
};

// send and recv of device memory: the FIFO of executor/p2p.cpp, with its slots on the sender's
// device. The hosts' slots contain the locations of the data.
//
//     sender's stream     wait(credit) [copy into slot] event ...
//     receiver's stream        wait(event) [copy out of slot] credit ...
class Messages {
 public:
  Messages(Peers& peers, Channels& channels, DevicePeers& device_peers, DeviceArena& arena,
           HandOff& hand_off);
  // Enqueues on the calling thread's current stream.
  void run(const Transfer& transfer);

 private:
  void send(const Transfer& transfer);
  void receive(const Transfer& transfer);

  struct PeerSlots {
    std::shared_ptr<CommMemory> memory;
    std::uint64_t sent = 0;  // pieces
  };
  Peers& peers_;
  Channels& channels_;
  DevicePeers& device_peers_;
  DeviceArena& arena_;
  HandOff& hand_off_;
  std::vector<PeerSlots> slots_;  // by peer
};

}  // namespace ringsmith::comm::cuda_ipc
