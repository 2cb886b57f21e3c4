// One rank of a communicator: its place among the ranks, the memory that the peers write to, and
// the operations that it starts on streams.
//
//     ncclAllReduce(..., stream)  -->  one kernel on the same stream, which waits for its peers'
//                                      kernels itself (runtime/comm/device/ring.cu)
//
// The host is not involved in a transfer once the ranks are connected. A call returns when its
// kernel is enqueued; the kernel runs when the stream reaches it, and finishes when this rank has
// its result. Therefore the kernels of all ranks must run simultaneously, each on a separate
// device.
//
// Calls of one communicator share counters, so they run one after the other: a call on a different
// stream waits for the event of the last call.
//
// A thread watches the started operations. If a peer dies or fails, it records the failure and then
// stops the kernels. A kernel that waits too long stops by itself and leaves a report.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "labs/nccl/errors.hpp"
#include "labs/nccl/messages.hpp"
#include "runtime/comm/device/device_memory.hpp"
#include "runtime/comm/transport/peers.hpp"

namespace ringsmith::nccl {

struct Element {
  DType dtype = DType::u8;
  bool other_sign = false;  // RingCall::other_sign
  [[nodiscard]] bool is_integer() const {
    return dtype == DType::u8 || dtype == DType::i32 || dtype == DType::i64;
  }
  bool operator==(const Element&) const = default;
};

// A sum whose contributions are multiplied by a factor first (ncclRedOpCreatePreMulSum).
struct Multiplier {
  Element element;
  double scale = 1;  // factor for floating types
  comm::cuda_ipc::Factor factor{};
};

struct CollectiveCall {
  const char* name;
  comm::Collective kind;
  const std::byte* input;
  std::byte* output;
  std::uint64_t count;  // elements; per part if the collective divides them
  Element element;
  kernels::Reduction reduction = kernels::Reduction::sum;
  bool average = false;
  std::optional<Multiplier> multiplier;
  int root = 0;
};

struct MessageCall {
  Message message;
  cudaStream_t stream;
  int part = 0;  // number of inner groups that had ended before it
};

class Communicator {
 public:
  // Collective over the ranks of the bootstrap, which is kept for split(). Throws the runtime's
  // errors, and Refusal if ranks share a device.
  Communicator(std::shared_ptr<comm::Bootstrap> bootstrap, Device device,
               std::chrono::milliseconds timeout);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return world_; }
  [[nodiscard]] Device device() const { return device_; }
  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }
  [[nodiscard]] comm::Bootstrap& bootstrap() const { return *bootstrap_; }

  void start(const CollectiveCall& call, cudaStream_t stream);
  // Starts the messages of a group. A part of the group waits for an earlier part only if it sends
  // memory that the earlier part receives, or receives into memory that the earlier part uses.
  // Messages of a rank to itself must be pairs of a send and a receive.
  void start(const std::vector<MessageCall>& calls);

  // The reductions that the program has created, numbered from 0. Numbers are reused.
  int add_reduction(const Multiplier& multiplier);
  [[nodiscard]] std::optional<Multiplier> reduction(int number);
  bool remove_reduction(int number);

  // Returns the reason if the communicator has failed. Does not wait.
  [[nodiscard]] std::optional<Refusal> failure();
  // Waits for all started operations. Throws Refusal if the communicator has failed.
  void finish();
  // Aborts the communicator on all ranks; `call`: the program's, for the message.
  void abort(const char* call);
  // First step of destruction. Waits until the kernels have finished or, after a failure, have had
  // time to stop. Then notifies the peers that this rank no longer uses their memory.
  void close() noexcept;
  // True if all peers have closed or are gone, so the memory that they may write to can be freed.
  [[nodiscard]] bool is_forgotten() const;

 private:
  struct Started {
    const char* name = "";
    std::uint64_t number = 0, count = 0;
  };

  void connect();
  void refuse_shared_devices(const std::vector<comm::cuda_ipc::Whereabouts>& ranks) const;
  void check_usable();
  void start_ring(const CollectiveCall& call, cudaStream_t stream);
  void copy_alone(const CollectiveCall& call, cudaStream_t stream) const;
  [[nodiscard]] kernels::Arithmetic arithmetic_of(const CollectiveCall& call) const;
  void start_batch(std::span<const MessageCall> calls, cudaStream_t stream);
  void start_round(const std::vector<const Message*>& round, cudaStream_t stream);
  void copy_own_messages(std::span<const MessageCall> calls, cudaStream_t stream) const;
  [[nodiscard]] bool begin_on(cudaStream_t stream);
  void end_on(cudaStream_t stream, bool captured);
  [[nodiscard]] comm::cuda_ipc::KernelTimeout timeout_of(const char* name, std::uint64_t count);
  void watch();
  void take_report();
  void stop_kernels();
  [[nodiscard]] bool is_idle() const;

  std::shared_ptr<comm::Bootstrap> bootstrap_;
  int rank_, world_;
  Device device_;
  std::chrono::milliseconds timeout_;

  // With more than one rank:
  std::unique_ptr<comm::Peers> peers_;
  Stream stream_;  // for the setup
  std::unique_ptr<comm::cuda_ipc::DevicePeers> device_peers_;
  std::shared_ptr<comm::cuda_ipc::DeviceArena> arena_;
  std::shared_ptr<comm::CommMemory> memory_;
  comm::cuda_ipc::Shape shape_;
  std::array<std::byte*, comm::cuda_ipc::kMostRanks> memory_of_{};
  comm::cuda_ipc::KernelReport* report_ = nullptr;

  std::mutex naming_;
  std::vector<std::optional<Multiplier>> reductions_;
  std::mutex launching_;
  CUevent_st* done_ = nullptr;  // event of the last call
  cudaStream_t last_stream_ = nullptr;
  bool started_any_ = false;
  std::uint64_t number_ = 0;
  std::mutex noting_;
  std::array<Started, 64> last_started_;  // for a report that arrives later

  std::mutex watching_;
  std::condition_variable changed_;
  bool pending_ = false, ending_ = false, closed_ = false;
  std::thread watcher_;
};

}  // namespace ringsmith::nccl

struct ncclComm : ringsmith::nccl::Communicator {
  using Communicator::Communicator;
};
