#include "runtime/analysis/simulator.hpp"

#include <algorithm>
#include <unordered_map>

#include "runtime/analysis/interpreter.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/schedule/direct.hpp"
#include "runtime/comm/schedule/ring.hpp"
#include "runtime/comm/schedule/schedule.hpp"
#include "runtime/comm/schedule/select.hpp"

namespace ringsmith::comm {

namespace {

// The interpreter visits posts and receives in an order that respects every dependency; this class
// adds the times.
class Clocks : public Observer {
 public:
  Clocks(const Schedule& schedule, std::size_t element_size, const Network& network, bool keep)
      : schedule_(schedule),
        element_size_(element_size),
        network_(network),
        keep_(keep),
        ranks_(schedule.steps.size()) {
    if (!keep) return;
    for (std::size_t rank = 0; rank < schedule.steps.size(); ++rank) {
      first_event_.push_back(result_.events.size());
      for (std::size_t step = 0; step < schedule.steps[rank].size(); ++step)
        result_.events.push_back({static_cast<int>(rank), static_cast<int>(step)});
    }
  }

  void posted(int rank, int step) override {
    const Step& s = step_of(rank, step);
    const double bytes = bytes_of(s.send_chunk, s.chunks);
    RankClock& me = ranks_[at(rank)];
    SimulatedChannel& channel = channel_of(rank, s.send_peer);
    const std::size_t n = channel.starts.size();
    double start = me.clock;
    if (bytes > 0) {
      const auto slots = static_cast<std::size_t>(network_.slots);
      const double credit = n >= slots ? channel.done[n - slots] : 0;
      start = std::max(std::max(me.clock, me.out_free), credit);
      me.out_free = start + bytes * network_.link(rank, s.send_peer).beta;
      me.clock = start;
      ++result_.messages;
      result_.bytes += bytes;
    }
    channel.starts.push_back(start);
    if (keep_) event(rank, step).posted = start;
  }

  void received(int rank, int step, int sender, int /*sender_step*/) override {
    const Step& s = step_of(rank, step);
    const double bytes = bytes_of(s.recv_chunk, s.chunks);
    RankClock& me = ranks_[at(rank)];
    const double began = me.clock;
    double arrived = me.clock;
    SimulatedChannel* channel = sender == rank ? nullptr : &channel_of(sender, rank);
    if (bytes > 0) {
      if (channel != nullptr) {
        const Link link = network_.link(sender, rank);
        const double start = channel->starts[channel->done.size()];
        me.in_free = std::max(start + link.alpha, me.in_free) + bytes * link.beta;
        arrived = std::max(me.clock, me.in_free);
      }
      me.clock = arrived + (s.action == Action::reduce ? bytes * network_.gamma : 0);
    }
    if (channel != nullptr) channel->done.push_back(me.clock);
    if (keep_) {
      StepEvents& e = event(rank, step);
      e.began = began;
      e.arrived = arrived;
      e.finished = me.clock;
    }
  }

  Simulation result() && {
    for (const RankClock& rank : ranks_) {
      result_.finished.push_back(rank.clock);
      result_.seconds = std::max(result_.seconds, rank.clock);
    }
    result_.seconds += network_.overhead;
    return std::move(result_);
  }

 private:
  struct RankClock {
    double clock = 0, out_free = 0, in_free = 0;
  };
  struct SimulatedChannel {
    std::vector<double> starts, done;  // of its messages, in order
  };

  const Step& step_of(int rank, int step) { return schedule_.steps[at(rank)][at(step)]; }
  double bytes_of(int chunk, int chunks) {
    return static_cast<double>(message_count(schedule_, chunk, chunks) * element_size_);
  }
  SimulatedChannel& channel_of(int from, int to) {
    return channels_[at(from) * ranks_.size() + at(to)];
  }
  StepEvents& event(int rank, int step) {
    return result_.events[first_event_[at(rank)] + at(step)];
  }

  const Schedule& schedule_;
  std::size_t element_size_;
  const Network& network_;
  bool keep_;
  std::vector<RankClock> ranks_;
  std::unordered_map<std::size_t, SimulatedChannel> channels_;
  Simulation result_;
  std::vector<std::size_t> first_event_;  // of each rank, in result_.events
};

// All ranks of a ring between two steps, with the arithmetic of Clocks. Each half of a step is one
// branchless loop over all ranks, which the compiler can vectorise.
struct RingClocks {
  explicit RingClocks(std::size_t n)
      : alpha(n), beta_in(n), beta_out(n), clock(n), out_free(n), in_free(n), start(n + 1) {}

  // Posts a message on every rank. bytes[r]: size of rank r's message; credit[r]: when the slot for
  // that message became free.
  void post(const double* __restrict bytes, const double* __restrict credit) {
    double* __restrict now = clock.data();
    double* __restrict out = out_free.data();
    double* __restrict begun = start.data() + 1;  // of rank r at r + 1; entry 0 is the last rank's
    const double* __restrict beta = beta_out.data();
    for (std::size_t r = 0; r < clock.size(); ++r) {
      const bool some = bytes[r] > 0;
      const double free = std::max(std::max(now[r], out[r]), credit[r]);
      begun[r] = now[r] = some ? free : now[r];
      out[r] = some ? free + bytes[r] * beta[r] : out[r];
    }
    start.front() = start.back();
  }

  void receive(const double* __restrict bytes, double gamma, double* __restrict done) {
    double* __restrict now = clock.data();
    double* __restrict in = in_free.data();
    const double* __restrict begun = start.data();  // of rank r - 1
    const double* __restrict a = alpha.data();
    const double* __restrict beta = beta_in.data();
    for (std::size_t r = 0; r < clock.size(); ++r) {
      const bool some = bytes[r] > 0;
      const double moved = std::max(begun[r] + a[r], in[r]) + bytes[r] * beta[r];
      in[r] = some ? moved : in[r];
      now[r] = some ? std::max(now[r], moved) + bytes[r] * gamma : now[r];
      done[r] = now[r];
    }
    done[clock.size()] = done[0];
  }

  std::vector<double> alpha, beta_in, beta_out;  // [r]: of the link into, and out of, rank r
  std::vector<double> clock, out_free, in_free, start;
};

}  // namespace

Network Network::uniform(Link link, double gamma, double overhead) {
  return {[link](int, int) { return link; }, gamma, overhead};
}

Simulation simulate(const Schedule& schedule, std::size_t element_size, const Network& network,
                    bool keep_events) {
  require(network.slots >= 1, "the simulator needs at least one slot for each connection");
  Clocks clocks(schedule, element_size, network, keep_events);
  const auto blocked = interpret(schedule, {network.slots, false}, clocks);
  require(blocked.empty(), "the schedule does not finish with " + std::to_string(network.slots) +
                               " slots: the checker says why");
  return std::move(clocks).result();
}

Simulation simulate_ring_all_reduce(int world, std::size_t count, std::size_t element_size,
                                    const Network& network) {
  check_world(world);
  require(network.slots >= 1, "the simulator needs at least one slot for each connection");
  const auto n = static_cast<std::size_t>(world);
  const auto slots = static_cast<std::size_t>(network.slots);
  const int steps = 2 * (world - 1);
  Simulation result;

  RingClocks clocks(n);
  for (int r = 0; world > 1 && r < world; ++r) {
    const Link in = network.link(wrap(r - 1, world), r);
    const auto i = static_cast<std::size_t>(r);
    clocks.alpha[i] = in.alpha;
    clocks.beta_in[i] = in.beta;
    clocks.beta_out[i] = network.link(r, wrap(r + 1, world)).beta;
  }
  // The chunk sizes in bytes, stored twice in a row, so that the sizes that all ranks send in a
  // step are contiguous.
  const auto chunks = split_evenly(count, world);
  std::vector<double> size(2 * n);
  for (std::size_t i = 0; i < 2 * n; ++i)
    size[i] = static_cast<double>(chunks[i % n].count * element_size);
  // done[s % slots][r]: time at which rank r finished step s, for the last `slots` steps. Entry n
  // repeats entry 0, so that a rank finds its right neighbour at r + 1.
  std::vector<std::vector<double>> done(slots, std::vector<double>(n + 1, 0));

  for (int s = 0; s < steps; ++s) {
    const Step step = ring_all_reduce_step(world, 0, s);
    std::vector<double>& row = done[static_cast<std::size_t>(s) % slots];
    clocks.post(size.data() + step.send_chunk, row.data() + 1);
    clocks.receive(size.data() + step.recv_chunk, step.action == Action::reduce ? network.gamma : 0,
                   row.data());
  }
  result.messages = std::min(count, n) * static_cast<std::uint64_t>(steps);
  result.bytes = static_cast<double>(count * element_size) * steps;
  result.finished = clocks.clock;
  result.seconds = *std::max_element(clocks.clock.begin(), clocks.clock.end()) + network.overhead;
  return result;
}

std::vector<int> Topology::node_of(int world) const {
  require(world <= most_ranks(), std::to_string(world) + " ranks do not fit into " + name + ": " +
                                     std::to_string(nodes) + " nodes of " +
                                     std::to_string(gpus_per_node) + " GPUs");
  return nodes_of(world, gpus_per_node);
}

Network Topology::network(int senders_per_node) const {
  Link shared = nic;
  shared.beta *= std::max(1.0, static_cast<double>(senders_per_node) / nics_per_node);
  Network network;
  network.link = [within = gpu, shared, size = gpus_per_node](int from, int to) {
    return from / size == to / size ? within : shared;
  };
  network.gamma = gamma;
  network.overhead = overhead;
  return network;
}

double all_reduce_time(const Topology& topology, Algorithm algorithm, int world, double bytes) {
  const std::vector<int> node_of = topology.node_of(world);
  const int per_node = topology.gpus_per_node;
  const auto count = static_cast<std::size_t>(bytes);
  if (world == 1) return 0;
  if (algorithm == Algorithm::ring)
    return simulate_ring_all_reduce(world, count, 1, topology.network(1)).seconds;
  if (algorithm == Algorithm::hierarchical && world > per_node && world % per_node == 0) {
    // First a reduce-scatter within each node, then one ring per GPU of a node (all rings run
    // concurrently), then an all-gather within each node.
    const Link shared = topology.network(per_node).link(0, per_node);
    const Network between = Network::uniform(shared, topology.gamma);
    const Network inside = topology.network(0);
    const double before =
        simulate(direct_schedule(Collective::reduce_scatter, per_node, count), 1, inside).seconds;
    const double after =
        simulate(direct_schedule(Collective::all_gather, per_node, count), 1, inside).seconds;
    const auto part = count / static_cast<std::size_t>(per_node);
    const auto ring = simulate_ring_all_reduce(world / per_node, part, 1, between);
    return before + ring.seconds + after - topology.overhead;
  }
  const Schedule schedule =
      make_schedule(Collective::all_reduce, algorithm, world, count, 1, 0, node_of);
  return simulate(schedule, 1, topology.network(senders_per_node(schedule, node_of))).seconds;
}

}  // namespace ringsmith::comm
