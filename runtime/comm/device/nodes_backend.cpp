// Runs all_reduce on the GPUs of several nodes by hierarchical_in_pieces()
// (schedule/hierarchical.hpp).
//
//     piece p      1. reduce-scatter within the node    an engine, on the group's stream
//                  2. this rank's part -> pinned        copy, on the stream out_
//                  3. rings between nodes               this thread, in the slots of the group
//                  4. pinned -> this rank's part        copy, on the stream in_
//                  5. all-gather within the node        an engine, on the group's stream
//
// Phase 1 of piece p + 1 is launched before this thread enters phase 3 of piece p, so the GPUs add
// up a piece while the network carries another one. No rank of a node leads: each sends its part to
// the ranks of other nodes that own it there. With nodes of equal size, these have the same local
// rank, and phase 3 is one ring; otherwise a part is divided between several ranks of another node.
//
// The ranks of a node form a second group, with its own shared memory and peer access. The whole
// group compares calls and reports errors, in its own rank numbers.
#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "kernels/cuda/launch.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/device/backend.hpp"
#include "runtime/comm/schedule/hierarchical.hpp"
#include "runtime/device/transfer.hpp"

namespace ringsmith::comm {

using namespace std::chrono_literals;

namespace {

// Size of a part, which a rank sends while its node sums the next piece. Shorter parts cost more
// launches; longer parts overlap less. Not tuned on devices yet.
constexpr std::size_t kPartBytes = std::size_t{1} << 20;
// One part is on its way from the device, one in the network, one on its way back.
constexpr std::size_t kStages = 3;
// How long to wait for a peer's report if an error within the node does not name the cause.
constexpr auto kReportMoment = 500ms;

FailureKind kind_of(const Error& error) {
  if (dynamic_cast<const TimeoutError*>(&error) != nullptr) return FailureKind::timeout;
  if (dynamic_cast<const PeerLost*>(&error) != nullptr) return FailureKind::peer_lost;
  if (dynamic_cast<const MismatchError*>(&error) != nullptr) return FailureKind::mismatch;
  if (dynamic_cast<const Aborted*>(&error) != nullptr) return FailureKind::aborted;
  return FailureKind::other;
}

class NodesBackend : public DeviceBackend {
 public:
  // Collective over the ranks of the node. Without peer access, `refused` says why.
  NodesBackend(const Group& group, const std::shared_ptr<Bootstrap>& node,
               const GroupOptions& options, const cuda_ipc::Tuning& tuning, std::string& refused)
      : group_(group),
        members_(ranks_of_nodes(group.peers.segments().node_of(), group.peers.size())),
        shares_(shares_of_nodes(members_)),
        node_peers_(node, options),
        node_dispatcher_(node_peers_) {
    for (std::size_t i = 1; i < members_.size(); ++i)
      if (std::ranges::count(members_[i], group.peers.rank()) > 0) mine_ = i;
    for (std::size_t s = 0; s < shares_.segments.size(); ++s)
      if (shares_.segments[s].owners[mine_] == group.peers.rank()) segments_.push_back(s);
    node_ = make_peer_backend(*node, {node_peers_, node_dispatcher_, group.device, group.stream},
                              options.engine, tuning, refused);
    if (!node_) return;
    staged_ = make_staged_backend(group, CudaEngine::automatic, "");
    const DeviceGuard guard(group.device);
    const StreamGuard stream_guard(group.stream);
    out_ = Stream::create(group.device, Stream::Priority::high);
    in_ = Stream::create(group.device, Stream::Priority::high);
    for (Staging& stage : stages_) stage.memory = std::make_unique<PinnedBlock>(Bytes(kPartBytes));
    constexpr std::size_t kLongestElement = 8;  // bytes
    rest_ = node_->allocate(Bytes(at(shares_.units) * kLongestElement));
  }

  ~NodesBackend() override {
    for (Staging& stage : stages_)
      if (stage.memory) {
        stage.memory->release_after(out_);
        stage.memory->release_after(in_);
      }
  }
  NodesBackend(const NodesBackend&) = delete;
  NodesBackend& operator=(const NodesBackend&) = delete;

  void run(Transfer& transfer) override {
    Peers& peers = group_.peers;
    const Choice choice = choose(transfer.call, peers.size(), Route::nodes, kNothingShared);
    if (transfer.call.is_message() || choice.executor != Executor::nodes)
      return staged_->run(transfer);
    peers.health().check_usable();
    peers.health().enter(transfer.call, transfer.sequence, transfer.called_at());
    try {
      group_.dispatcher.agreement().answer();
      group_.dispatcher.agreement().await_all();
      all_reduce(transfer);
    } catch (const Error& error) {
      const bool reported = !peers.health().is_usable();
      Health::Failed failed{kind_of(error), -1, error.what()};
      if (!reported) {
        failed = explain(error);
        peers.health().record_failure(failed.kind, failed.culprit, failed.text);
      }
      // Ends the waits of this node's hosts and kernels.
      node_peers_.health().record_failure(failed.kind, -1, failed.text);
      node_->give_up();
      if (reported) throw;
      throw_failure(failed.kind, failed.text, peers.health().where(failed.culprit));
    }
    peers.health().leave();
  }

  [[nodiscard]] std::shared_ptr<CommMemory> allocate(Bytes size) override {
    return node_->allocate(size);
  }
  [[nodiscard]] HostWait host_wait() const override { return node_->host_wait(); }
  void abort(Site site) override { node_peers_.health().mark_aborted(site); }
  [[nodiscard]] CudaEngine engine() const override { return node_->engine(); }
  [[nodiscard]] std::vector<std::string> describe() const override {
    std::vector<std::string> facts;
    for (const std::string& line : node_->describe()) facts.push_back("within each node: " + line);
    for (const std::string& line : group_.peers.segments().describe()) facts.push_back(line);
    facts.push_back("all_reduce between nodes: " +
                    (node_peers_.size() == 1
                         ? "the node's only rank sends its values"
                         : "each of a node's " + std::to_string(node_peers_.size()) +
                               " ranks sends its part of the node's sum") +
                    ", in pieces of pinned host memory; "
                    "letting the network device read " +
                    group_.device.str() + " (dma-buf, nvidia_peermem) is not implemented");
    facts.emplace_back("other collectives between nodes: copied through pinned host memory");
    return facts;
  }

 private:
  using Operation = std::shared_ptr<cuda_ipc::DeviceOperation>;

  struct Staging {
    std::unique_ptr<PinnedBlock> memory;
    ringsmith::Event emptied;  // its last part has been copied to the device
  };

  // A piece in device memory. The last piece of a buffer may have fewer elements than units, and
  // then is summed in rest_.
  struct PieceBuffers {
    const std::byte* input;  // all parts
    std::byte* output;       // all parts
    std::size_t own;         // elements of this rank's part that are in the buffer
  };

  struct PartRing {
    Schedule schedule;
    Plan plan;
  };

  [[nodiscard]] int local() const { return node_peers_.rank(); }

  // Returns the failure within the node as the whole group reports it. A peer's report takes
  // precedence, because it may state why the node has failed.
  [[nodiscard]] Health::Failed explain(const Error& error) const {
    Peers& peers = group_.peers;
    const FailureKind kind = kind_of(error);
    const bool vague = kind == FailureKind::aborted || kind == FailureKind::other;
    for (auto waited = 0ms;; waited += 1ms) {
      peers.segments().look();
      if (auto report = peers.health().look_for_report(); report.kind != FailureKind::none)
        return report;
      if (!vague || waited >= kReportMoment) break;
      std::this_thread::sleep_for(1ms);
    }
    const int peer = error.where().peer;
    return {kind, peer < 0 ? -1 : members_[mine_][at(peer)],
            std::string("within the node: ") + error.what()};
  }

  void all_reduce(const Transfer& transfer) {
    const DeviceGuard guard(group_.device);
    const StreamGuard stream_guard(group_.stream);
    group_.stream.wait(transfer.operation->ready());
    const std::size_t width = size_of(transfer.call.dtype);
    const auto pieces =
        node_pieces(transfer.call.count, shares_.units, shares_.longest_unit(kPartBytes / width));
    Operation fetched = fetch(transfer, pieces[0], 0), last;
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      const Operation now = std::move(fetched);
      if (p + 1 < pieces.size()) fetched = fetch(transfer, pieces[p + 1], p + 1);
      await(*now);
      exchange(transfer, pieces[p], p);
      last = deliver(transfer, pieces[p], p);
    }
    transfer.operation->launched(last->number(), transfer.call.describe(), transfer.sequence,
                                 group_.stream);
  }

  // Blocks until the operation is done on the device. Throws if it or a rank of the group fails.
  void await(const cuda_ipc::DeviceOperation& operation) {
    constexpr int kSpins = 64;
    Peers& peers = group_.peers;
    for (int turn = 0; !operation.done().has_happened() && node_peers_.health().is_usable();
         ++turn) {
      if (turn < kSpins) {
        std::this_thread::yield();
        continue;
      }
      // The data may never be ready on this rank, so that only other ranks notice a failure.
      peers.segments().look();
      if (const auto report = peers.health().look_for_report(); report.kind != FailureKind::none)
        peers.health().fail(report.kind, report.culprit, report.text);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    node_->host_wait()(operation);
  }

  // The units of a part in this node, and its elements in a piece.
  [[nodiscard]] int units() const { return shares_.units / node_peers_.size(); }
  [[nodiscard]] std::size_t part_of(const NodePiece& piece) const {
    return at(units()) * piece.unit;
  }
  [[nodiscard]] bool is_whole(const Transfer& transfer, const NodePiece& piece) const {
    return piece.offset + at(shares_.units) * piece.unit <= transfer.call.count;
  }
  [[nodiscard]] PieceBuffers place_of(const Transfer& transfer, const NodePiece& piece) const {
    const int first = local() * units();
    const std::size_t own = piece.part_of(first, first + units(), transfer.call.count).count;
    if (!is_whole(transfer, piece)) return {rest_->data(), rest_->data(), own};
    const std::size_t begin = piece.offset * size_of(transfer.call.dtype);
    return {transfer.input.data() + begin, transfer.output.data() + begin, own};
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, const Stream& stream) const {
    if (bytes > 0) cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream.get()));
  }

  // Launches a collective within the node, after everything queued on the group's stream.
  Operation run_within_node(const Transfer& whole, Collective collective, std::size_t part,
                            const std::byte* input, std::byte* output) {
    Transfer transfer = whole;
    transfer.call.collective = collective;
    transfer.call.algorithm = Algorithm::automatic;
    transfer.call.count = part;
    if (collective == Collective::all_gather) transfer.call.op = ReduceOp::sum;
    const Elements all(at(node_peers_.size()) * part), own(part);
    const bool scatters = collective == Collective::reduce_scatter;
    transfer.input = {input, scatters ? all : own, whole.call.dtype, whole.input.site()};
    transfer.output = {output, scatters ? own : all, whole.call.dtype, whole.output.site()};
    transfer.site = whole.called_at();
    transfer.averaged_over = group_.peers.size();
    transfer.operation =
        std::make_shared<cuda_ipc::DeviceOperation>(ringsmith::Event::record(group_.stream));
    node_->run(transfer);
    return transfer.operation;
  }

  // Phases 1 and 2. Returns the operation that is done when the part is in pinned memory.
  Operation fetch(const Transfer& transfer, const NodePiece& piece, std::size_t p) {
    const PieceBuffers place = place_of(transfer, piece);
    const std::size_t width = size_of(transfer.call.dtype);
    if (!is_whole(transfer, piece))
      copy(rest_->data(), transfer.input.data() + piece.offset * width,
           (transfer.call.count - piece.offset) * width, group_.stream);
    std::byte* const part = place.output + at(local()) * part_of(piece) * width;
    const Operation summed =
        run_within_node(transfer, Collective::reduce_scatter, part_of(piece), place.input, part);
    Staging& stage = stages_[p % kStages];
    const auto fetched =
        std::make_shared<cuda_ipc::DeviceOperation>(ringsmith::Event::record(group_.stream));
    out_.wait(fetched->ready());
    if (stage.emptied.defined()) out_.wait(stage.emptied);
    copy(stage.memory->data(), part, place.own * width, out_);
    fetched->launched(summed->number(), summed->call(), transfer.sequence, out_);
    return fetched;
  }

  // Phase 3, on this thread.
  void exchange(const Transfer& whole, const NodePiece& piece, std::size_t p) {
    std::byte* data = stages_[p % kStages].memory->data();
    for (const std::size_t s : segments_) {
      const NodeSegment& segment = shares_.segments[s];
      const std::size_t count = piece.part_of(segment.begin, segment.end, whole.call.count).count;
      if (count == 0) continue;  // on all ranks of this ring
      Transfer transfer = whole;
      transfer.call.count = count;
      // The ranks of the node have already multiplied their contributions.
      if (transfer.call.op == ReduceOp::avg) transfer.call.op = ReduceOp::sum;
      transfer.input =
          transfer.output = {data, Elements(count), whole.call.dtype, whole.output.site()};
      const PartRing& ring = ring_of(s, count);
      run_in_slots(group_.peers, group_.dispatcher.channels(), ring.schedule, ring.plan, transfer);
      data += count * size_of(whole.call.dtype);
    }
    group_.peers.waiter().flush();  // this thread may now wait for the device
    group_.peers.health().at_step(-1);
  }

  const PartRing& ring_of(std::size_t segment, std::size_t count) {
    constexpr std::size_t kMostRings = 512;  // at this number, a new length drops all others
    const auto found = rings_.find({segment, count});
    if (found != rings_.end()) return found->second;
    if (rings_.size() == kMostRings) rings_.clear();
    PartRing ring;
    ring.schedule = ring_between_nodes(
        group_.peers.size(), count, group_.peers.segments().node_of(), shares_.segments[segment]);
    ring.plan = std::move(make_plans(ring.schedule)[at(group_.peers.rank())]);
    return rings_.emplace(std::pair(segment, count), std::move(ring)).first->second;
  }

  // Phases 4 and 5.
  Operation deliver(const Transfer& transfer, const NodePiece& piece, std::size_t p) {
    const PieceBuffers place = place_of(transfer, piece);
    const std::size_t width = size_of(transfer.call.dtype);
    std::byte* const part = place.output + at(local()) * part_of(piece) * width;
    Staging& stage = stages_[p % kStages];
    copy(part, stage.memory->data(), place.own * width, in_);
    stage.emptied = ringsmith::Event::record(in_);
    group_.stream.wait(stage.emptied);
    const Operation gathered =
        run_within_node(transfer, Collective::all_gather, part_of(piece), part, place.output);
    if (!is_whole(transfer, piece))
      copy(transfer.output.data() + piece.offset * width, rest_->data(),
           (transfer.call.count - piece.offset) * width, group_.stream);
    return gathered;
  }

  Group group_;
  std::vector<std::vector<int>> members_;  // the ranks of each node
  NodeShares shares_;
  std::vector<std::size_t> segments_;  // indices of the segments that this rank owns
  std::size_t mine_ = 0;               // this rank's node
  Peers node_peers_;
  Dispatcher node_dispatcher_;
  std::unique_ptr<DeviceBackend> node_, staged_;
  Stream out_, in_;
  std::array<Staging, kStages> stages_;
  std::shared_ptr<CommMemory> rest_;                               // one element for each unit
  std::map<std::pair<std::size_t, std::size_t>, PartRing> rings_;  // by segment and elements
};

std::string why_not(const std::vector<std::vector<int>>& nodes) {
  // A piece of units of one element must fit into a staging buffer and into rest_.
  constexpr int kMostUnits = 4096;
  if (std::ranges::all_of(nodes, [](const auto& node) { return node.size() == 1; }))
    return "every node has one rank";
  std::set<std::size_t> sizes;
  std::int64_t units = 1;
  for (const auto& node : nodes)
    if (sizes.insert(node.size()).second)
      units = std::min(std::lcm(units, static_cast<std::int64_t>(node.size())),
                       std::int64_t{kMostUnits} + 1);
  if (units <= kMostUnits) return "";
  std::string text;
  for (const std::size_t size : sizes) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "the nodes' numbers of ranks (" + text + ") have no common multiple up to " +
         std::to_string(kMostUnits);
}

}  // namespace

std::unique_ptr<DeviceBackend> make_nodes_backend(
    Bootstrap& bootstrap, const std::shared_ptr<Bootstrap>& node, const DeviceBackend::Group& group,
    const GroupOptions& options, const cuda_ipc::Tuning& tuning, std::string& refused) {
  const std::vector<int> node_of = group.peers.segments().node_of();
  refused = why_not(ranks_of_nodes(node_of, group.peers.size()));
  if (!refused.empty()) return nullptr;
  GroupOptions within = options;
  within.transport = Transport::shm;
  std::unique_ptr<NodesBackend> backend;
  std::string problem;
  try {
    backend = std::make_unique<NodesBackend>(group, node, within, tuning, problem);
  } catch (const UsageError& error) {  // the requested engine cannot work in this node
    problem = error.what();
  }
  constexpr std::size_t kMostText = 1024;
  const std::vector<std::string> problems =
      bootstrap.all_gather("." + problem.substr(0, kMostText));
  for (std::size_t r = 0; r < problems.size(); ++r) {
    if (problems[r].size() == 1) continue;
    refused = "on the node of rank " + std::to_string(r) + ": " + problems[r].substr(1);
    if (options.engine != CudaEngine::automatic) throw UsageError(refused);
    return nullptr;
  }
  return backend;
}

}  // namespace ringsmith::comm
