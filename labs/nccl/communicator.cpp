#include "labs/nccl/communicator.hpp"

#include <algorithm>
#include <utility>

#include "kernels/cuda/launch.hpp"
#include "runtime/comm/schedule/schedule.hpp"
#include "runtime/device/capture_guard.hpp"

namespace ringsmith::nccl {

using namespace comm;
using namespace comm::cuda_ipc;
using namespace std::chrono_literals;

namespace {

constexpr auto kLook = 2ms, kPeersLook = 10ms;  // polling intervals of the watching thread
constexpr auto kLastWords = 2000ms;             // for kernels to notice that they must stop

std::size_t at(int i) { return static_cast<std::size_t>(i); }

std::byte* bytes_of(const std::byte* data) { return const_cast<std::byte*>(data); }

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cuda_check(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

// 1/world, rounded to the element type: the factor of an average is a value of that type.
double share_of(int world, DType dtype) {
  const double share = 1.0 / world;
  if (dtype == DType::f64) return share;
  const auto single = 1.0F / static_cast<float>(world);
  if (dtype == DType::f16) return static_cast<float>(f16(single));
  if (dtype == DType::bf16) return static_cast<float>(bf16(single));
  return single;
}

bool share_written_memory(const Message& a, const Message& b) {
  if (a.sends && b.sends) return false;
  const auto begin = [](const Message& m) { return reinterpret_cast<std::uintptr_t>(m.data); };
  return begin(a) < begin(b) + b.bytes && begin(b) < begin(a) + a.bytes;
}

// Returns the end of the batch of messages, starting at `begin`, that may run simultaneously. A
// program may wrap dependent steps, each of which is a group, in one outer group for several ranks
// (hypercube_perf -g 4), and expects the steps to run in order. Waiting for an earlier part cannot
// deadlock: without the outer group the parts would run in the same order.
std::size_t end_of_batch(const std::vector<MessageCall>& calls, std::size_t begin) {
  std::size_t part = begin;  // start of call i's part
  for (std::size_t i = begin; i < calls.size(); ++i) {
    if (calls[i].part != calls[part].part) part = i;
    for (std::size_t earlier = begin; earlier < part; ++earlier)
      if (share_written_memory(calls[earlier].message, calls[i].message)) return part;
  }
  return calls.size();
}

std::string awaited_text(const KernelReport& report) {
  const std::string peer = "rank " + std::to_string(report.peer);
  switch (report.awaited) {
    case Awaited::head:
      return peer + " to take a message";
    default:
      return "a message from " + peer;
  }
}

}  // namespace

Communicator::Communicator(std::shared_ptr<Bootstrap> bootstrap, Device device,
                           std::chrono::milliseconds timeout)
    : bootstrap_(std::move(bootstrap)),
      rank_(bootstrap_->rank()),
      world_(bootstrap_->size()),
      device_(device),
      timeout_(timeout) {
  const DeviceGuard guard(device_);
  cuda_check(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming));
  if (world_ > 1) connect();
}

void Communicator::connect() {
  GroupOptions options;
  options.timeout = timeout_;
  options.device = device_;
  options.transport = Transport::shm;  // UsageError if a rank is on another host
  peers_ = std::make_unique<Peers>(bootstrap_, options);
  stream_ = Stream::create(device_);
  const StreamGuard stream_guard(stream_);
  const std::vector<Whereabouts> ranks = exchange_whereabouts(*bootstrap_, device_);
  load_messages();
  refuse_shared_devices(ranks);
  shape_ = decide(ranks, CudaEngine::kernel).shape;
  device_peers_ = std::make_unique<DevicePeers>(*bootstrap_, peers_->segments(), device_, ranks);
  arena_ = std::make_shared<DeviceArena>(stream_, device_peers_->mine(),
                                         device_peers_->catalogue_memory());
  const Bytes size(memory_bytes(world_, shape_));
  memory_ = arena_->allocate(size);
  device_peers_->mine().station = *arena_->locate(memory_->data(), size);
  cuda_check(cudaHostAlloc(&report_, sizeof(KernelReport), cudaHostAllocMapped));
  *report_ = {};
  stream_.synchronize();  // the memory is zeroed before a peer's kernel writes to it
  device_peers_->meet(*bootstrap_);
  for (int r = 0; r < world_; ++r)
    memory_of_[at(r)] = device_peers_->address(r, device_peers_->of(r).station);
  watcher_ = std::thread([this] { watch(); });
}

void Communicator::refuse_shared_devices(const std::vector<Whereabouts>& ranks) const {
  for (int a = 0; a < world_; ++a)
    for (int b = a + 1; b < world_; ++b)
      if (ranks[at(a)].uuid == ranks[at(b)].uuid)
        throw Refusal(ncclInvalidUsage, "ranks " + std::to_string(a) + " and " + std::to_string(b) +
                                            " share a device (" + ranks[at(a)].device.str() +
                                            " of the first): give every rank its own");
}

// ---- starting ----

void Communicator::check_usable() {
  if (const auto failed = failure()) throw *failed;
}

// Makes the stream wait for the communicator's last call. If the stream is being captured into a
// graph, which needs no order with other streams, only returns true.
bool Communicator::begin_on(cudaStream_t stream) {
  if (is_capturing(stream)) return true;
  if (started_any_ && stream != last_stream_) cuda_check(cudaStreamWaitEvent(stream, done_, 0));
  return false;
}

void Communicator::end_on(cudaStream_t stream, bool captured) {
  if (captured) return;
  cuda_check(cudaEventRecord(done_, stream));
  last_stream_ = stream;
  started_any_ = true;
  if (world_ == 1) return;
  const std::scoped_lock lock(watching_);
  if (std::exchange(pending_, true)) return;
  changed_.notify_all();
}

cuda_ipc::KernelTimeout Communicator::timeout_of(const char* name, std::uint64_t count) {
  ++number_;
  {
    const std::scoped_lock lock(noting_);
    last_started_[number_ % last_started_.size()] = {name, number_, count};
  }
  cuda_ipc::KernelTimeout timeout{.report = report_, .operation = number_};
  timeout.nanoseconds = static_cast<std::uint64_t>(std::chrono::nanoseconds(timeout_).count());
  return timeout;
}

void Communicator::start(const CollectiveCall& call, cudaStream_t stream) {
  const DeviceGuard guard(device_);
  const std::scoped_lock lock(launching_);
  check_usable();
  if (call.count == 0) return;
  const bool captured = begin_on(stream);
  if (world_ == 1 && call.multiplier)
    launch_multiply(call.element.dtype, call.element.other_sign, call.output, call.input,
                    call.count, arithmetic_of(call), call.multiplier->factor, stream);
  else if (world_ == 1)
    copy_alone(call, stream);
  else
    start_ring(call, stream);
  end_on(stream, captured);
}

int Communicator::add_reduction(const Multiplier& multiplier) {
  const std::scoped_lock lock(naming_);
  const auto free = std::find(reductions_.begin(), reductions_.end(), std::nullopt);
  const auto number = static_cast<int>(free - reductions_.begin());
  if (free == reductions_.end())
    reductions_.emplace_back(multiplier);
  else
    *free = multiplier;
  return number;
}

std::optional<Multiplier> Communicator::reduction(int number) {
  const std::scoped_lock lock(naming_);
  return number >= 0 && at(number) < reductions_.size() ? reductions_[at(number)] : std::nullopt;
}

bool Communicator::remove_reduction(int number) {
  const std::scoped_lock lock(naming_);
  if (number < 0 || at(number) >= reductions_.size() || !reductions_[at(number)]) return false;
  reductions_[at(number)].reset();
  return true;
}

void Communicator::copy_alone(const CollectiveCall& call, cudaStream_t stream) const {
  if (call.input == call.output) return;
  cuda_check(cudaMemcpyAsync(call.output, call.input, call.count * size_of(call.element.dtype),
                             cudaMemcpyDefault, stream));
}

kernels::Arithmetic Communicator::arithmetic_of(const CollectiveCall& call) const {
  kernels::Arithmetic arithmetic{.reduction = call.reduction};
  if (call.multiplier) {
    arithmetic.scaled = true;
    arithmetic.scale = call.multiplier->scale;
  } else if (call.average && !call.element.is_integer()) {
    arithmetic.scaled = true;
    arithmetic.scale = share_of(world_, call.element.dtype);
  }
  return arithmetic;
}

void Communicator::start_ring(const CollectiveCall& call, cudaStream_t stream) {
  const auto is = [&](Collective kind) { return call.kind == kind; };
  const bool chain = is(Collective::broadcast) || is(Collective::reduce);
  const bool parts = is(Collective::all_gather) || is(Collective::reduce_scatter);
  const bool mean_of_integers = call.average && call.element.is_integer();
  RingCall ring{};
  ring.collective = call.kind;
  ring.dtype = call.element.dtype;
  ring.other_sign = call.element.other_sign;
  ring.arithmetic = arithmetic_of(call);
  if (call.multiplier) ring.factor = call.multiplier->factor;
  ring.world = world_;
  ring.rank = rank_;
  ring.previous_rank = wrap(rank_ - 1, world_);
  ring.next_rank = wrap(rank_ + 1, world_);
  ring.shape = shape_;
  ring.input = call.input;
  ring.output = call.output;
  ring.mine = memory_of_[at(rank_)];
  ring.previous = memory_of_[at(ring.previous_rank)];
  ring.next = memory_of_[at(ring.next_rank)];
  ring.slots = ring.mine + ring_slots_at(world_);
  ring.next_slots = ring.next + ring_slots_at(world_);
  ring.timeout = timeout_of(call.name, call.count);
  std::uint64_t longest = call.count;
  if (chain) {  // the root is the first rank of the chain, or the last
    ring.position = wrap(rank_ - call.root - (is(Collective::reduce) ? 1 : 0), world_);
    ring.chunks[0] = {0, call.count};
  } else {
    ring.position = rank_;
    const std::uint64_t all = call.count * (parts ? static_cast<std::uint64_t>(world_) : 1);
    const std::vector<Chunk> chunks = split_evenly(all, world_);
    for (int c = 0; c < world_; ++c) ring.chunks[c] = {chunks[at(c)].offset, chunks[at(c)].count};
    longest = chunks[0].count;
    if (is(Collective::reduce_scatter)) ring.output_begin = chunks[at(rank_)].offset;
    if (is(Collective::all_gather)) ring.input_begin = chunks[at(rank_)].offset;
  }
  const std::size_t per_block = std::size_t{64} * at(shape_.threads);  // bytes that justify a block
  ring.blocks = static_cast<int>(std::clamp<std::size_t>(
      (longest * size_of(ring.dtype) + per_block - 1) / per_block, 1, at(shape_.channels)));
  const std::size_t share = (longest + at(ring.blocks) - 1) / at(ring.blocks);
  ring.message_bytes = message_bytes_for(share * size_of(ring.dtype), shape_);
  launch_ring(ring, stream);
  const bool keeps = !is(Collective::reduce) || rank_ == call.root;
  if (is(Collective::broadcast) && rank_ == call.root) copy_alone(call, stream);
  if (mean_of_integers && keeps)
    launch_divide(ring.dtype, ring.other_sign, call.output, call.count, world_, stream);
}

void Communicator::start(const std::vector<MessageCall>& calls) {
  const DeviceGuard guard(device_);
  const std::scoped_lock lock(launching_);
  check_usable();
  const cudaStream_t stream = calls.front().stream;
  const bool captured = begin_on(stream);
  std::vector<cudaStream_t> others;
  for (const MessageCall& call : calls)
    if (call.stream != stream &&
        std::find(others.begin(), others.end(), call.stream) == others.end())
      others.push_back(call.stream);
  if (captured && !others.empty())
    throw Refusal(ncclInvalidUsage, "messages on several streams cannot be captured into a graph");
  // Wait for the other streams of the calls, which may still be writing the messages' buffers.
  for (const cudaStream_t other : others) {
    cuda_check(cudaEventRecord(done_, other));
    cuda_check(cudaStreamWaitEvent(stream, done_, 0));
  }
  for (std::size_t begin = 0; begin < calls.size();) {
    const std::size_t end = end_of_batch(calls, begin);
    start_batch(std::span(calls).subspan(begin, end - begin), stream);
    begin = end;
  }
  end_on(stream, captured);
  for (const cudaStream_t other : others) cuda_check(cudaStreamWaitEvent(other, done_, 0));
}

void Communicator::start_batch(std::span<const MessageCall> calls, cudaStream_t stream) {
  copy_own_messages(calls, stream);
  // Round k has the k-th message to and from each other rank; the peer handles the other end in its
  // round k.
  std::vector<std::vector<const Message*>> rounds;
  std::vector<std::array<std::size_t, 2>> met(at(world_));
  for (const MessageCall& call : calls) {
    const Message& message = call.message;
    if (message.peer == rank_ || message.bytes == 0) continue;
    const std::size_t round = met[at(message.peer)][message.sends ? 1 : 0]++;
    if (rounds.size() <= round) rounds.resize(round + 1);
    rounds[round].push_back(&message);
  }
  for (const auto& round : rounds) start_round(round, stream);
}

void Communicator::start_round(const std::vector<const Message*>& round, cudaStream_t stream) {
  MessagesCall call{};
  call.world = world_;
  call.rank = rank_;
  call.shape = shape_;
  call.timeout = timeout_of("ncclSend/ncclRecv", round.size());
  std::copy_n(memory_of_.begin(), world_, call.memory);
  for (const Message* message : round) call.messages[call.count++] = *message;
  launch_messages(call, stream);
}

void Communicator::copy_own_messages(std::span<const MessageCall> calls,
                                     cudaStream_t stream) const {
  std::vector<const Message*> sent, received;
  for (const MessageCall& call : calls)
    if (call.message.peer == rank_) (call.message.sends ? sent : received).push_back(&call.message);
  const auto says = [](std::size_t n, const char* what) { return std::to_string(n) + what; };
  if (sent.size() != received.size())
    throw Refusal(ncclInvalidUsage,
                  "rank " + std::to_string(rank_) + " has " + says(sent.size(), " ncclSend and ") +
                      says(received.size(), " ncclRecv with itself as the peer in this group: ") +
                      "put both ends of a message into the same group");
  for (std::size_t i = 0; i < sent.size(); ++i) {
    if (sent[i]->bytes != received[i]->bytes)
      throw Refusal(ncclInvalidUsage, "rank " + std::to_string(rank_) + " sends itself " +
                                          says(sent[i]->bytes, " bytes and receives ") +
                                          says(received[i]->bytes, ": give both the same count"));
    if (sent[i]->bytes > 0 && sent[i]->data != received[i]->data)
      cuda_check(cudaMemcpyAsync(received[i]->data, bytes_of(sent[i]->data), sent[i]->bytes,
                                 cudaMemcpyDefault, stream));
  }
}

// ---- failing ----

std::optional<Refusal> Communicator::failure() {
  if (world_ == 1) return {};
  take_report();
  if (peers_->health().is_usable()) return {};
  try {
    peers_->health().check_usable();
  } catch (...) {
    const Refusal refusal = current_refusal();
    // Drops the prefix "the group has been broken since an earlier call failed: ".
    const std::string text = refusal.what();
    const std::size_t begin = text.find("failed: ");
    return Refusal(refusal.result(),
                   begin == std::string::npos ? text : text.substr(begin + sizeof "failed: " - 1));
  }
  return {};
}

// Records the timeout of a kernel that stopped by itself, unless a failure is already recorded.
void Communicator::take_report() {
  if (!has_written(*report_) || !peers_->health().is_usable()) return;
  const KernelReport& report = *report_;
  Started started;
  {
    const std::scoped_lock lock(noting_);
    started = last_started_[report.operation % last_started_.size()];
  }
  std::string text = "rank " + std::to_string(rank_) + " waited " +
                     std::to_string(timeout_.count()) + " ms for " + awaited_text(report) +
                     " (RINGSMITH_NCCL_TIMEOUT_MS)";
  if (started.number == report.operation)
    text += ", in " + std::string(started.name) + " #" + std::to_string(started.number - 1) +
            " of " + std::to_string(started.count) +
            ": have all ranks made the same calls, with the same counts?";
  peers_->health().record_failure(FailureKind::timeout, report.peer, text);
}

void Communicator::stop_kernels() {
  SystemAtomic<std::uint32_t>(report_->stop).store(1, cuda::memory_order_relaxed);
}

bool Communicator::is_idle() const {
  const CaptureGuard beside_captures;  // of the program's threads
  const cudaError_t code = cudaEventQuery(done_);
  if (code == cudaErrorNotReady) (void)cudaGetLastError();
  return code != cudaErrorNotReady;
}

// Records a failure before it stops the kernels, so that a caller whose stream has finished finds
// the reason.
void Communicator::watch() {
  const DeviceGuard guard(device_);
  std::unique_lock lock(watching_);
  auto next_look = std::chrono::steady_clock::now();
  while (!ending_) {
    changed_.wait(lock, [this] { return ending_ || pending_; });
    if (ending_) break;
    pending_ = false;
    lock.unlock();
    const bool idle = is_idle();
    if (!idle && std::chrono::steady_clock::now() >= next_look) {
      const Health::Failed failed = peers_->health().look_for_failure(-1);
      if (failed.kind != FailureKind::none && !is_idle()) {
        peers_->health().record_failure(failed.kind, failed.culprit, failed.text);
        stop_kernels();
      }
      next_look = std::chrono::steady_clock::now() + kPeersLook;
    }
    take_report();
    lock.lock();
    if (idle) continue;
    if (!peers_->health().is_usable()) break;
    pending_ = true;
    changed_.wait_for(lock, kLook, [this] { return ending_; });
  }
}

// ---- ending ----

void Communicator::finish() {
  if (started_any_) cuda_check(cudaEventSynchronize(done_));
  check_usable();
}

void Communicator::abort(const char* call) {
  if (world_ == 1) return;
  peers_->health().record_failure(FailureKind::aborted, rank_,
                                  "rank " + std::to_string(rank_) + " called " + call);
  stop_kernels();
}

void Communicator::close() noexcept {
  if (std::exchange(closed_, true) || world_ == 1) return;
  const auto end = std::chrono::steady_clock::now() + kLastWords;
  try {
    const DeviceGuard guard(device_);
    while (!is_idle() && (peers_->health().is_usable() || std::chrono::steady_clock::now() < end))
      // The watcher thread still runs, and stops the kernels if a peer fails.
      std::this_thread::sleep_for(1ms);
    if (is_idle())
      device_peers_->close();
    else
      device_peers_->abandon();
  } catch (const Error&) {
    device_peers_->abandon();
  }
  {
    const std::scoped_lock lock(watching_);
    ending_ = true;
    changed_.notify_all();
  }
  watcher_.join();
  peers_->segments().mine().board.left.store(kInOrder);
}

bool Communicator::is_forgotten() const {
  return world_ == 1 || device_peers_->wait_for_others_to_close(0ms);
}

Communicator::~Communicator() {
  close();
  const DeviceGuard guard(device_);
  if (world_ > 1 && !is_forgotten()) {  // a peer may still write to the memory
    arena_->abandon();
    report_ = nullptr;
  }
  memory_.reset();
  arena_.reset();
  device_peers_.reset();
  peers_.reset();
  if (report_ != nullptr) (void)cudaFreeHost(report_);
  (void)cudaEventDestroy(done_);
}

}  // namespace ringsmith::nccl
