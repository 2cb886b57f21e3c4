#include "runtime/analysis/checker.hpp"

#include <algorithm>
#include <iterator>

#include "runtime/analysis/interpreter.hpp"
#include "runtime/comm/schedule/halving.hpp"
#include "runtime/comm/schedule/schedule.hpp"
#include "runtime/comm/schedule/tree.hpp"

namespace ringsmith::comm {

namespace {

std::string number(std::size_t n) { return std::to_string(n); }
std::string number(int n) { return std::to_string(n); }

std::string text_of(const Value& value) {
  std::string out;
  for (const Origin& origin : value)
    out +=
        (out.empty() ? "" : ", ") +
        (origin == kUndefined ? "undefined data"
                              : "rank " + number(origin.rank) + "'s chunk " + number(origin.chunk));
  return out.empty() ? "nothing" : out;
}

class Checker {
 public:
  Checker(const Schedule& schedule, const CheckOptions& options)
      : schedule_(schedule), options_(options) {}

  std::vector<Violation> run() {
    const auto stages = {&Checker::shape, &Checker::messages, &Checker::progress, &Checker::values,
                         &Checker::cost};
    for (const auto stage : stages)
      if (findings_.empty()) (this->*stage)();
    return std::move(findings_);
  }

 private:
  void add(Fault fault, int rank, int step, std::string reason) {
    findings_.push_back({fault, rank, step, std::move(reason)});
  }

  // ---- 1. shape (numbers as in checker.hpp) ----
  void shape() {
    if (schedule_.world < 1 || schedule_.steps.size() != at(schedule_.world))
      return add(Fault::shape, -1, -1,
                 "a world of " + number(schedule_.world) + " has steps for " +
                     number(schedule_.steps.size()) + " ranks");
    if (schedule_.root < 0 || schedule_.root >= schedule_.world)
      add(Fault::shape, -1, -1, "root " + number(schedule_.root) + " is not a rank of the world");
    chunks();
    for (int rank = 0; rank < schedule_.world; ++rank) {
      const auto& steps = schedule_.steps[at(rank)];
      for (int s = 0; s < static_cast<int>(steps.size()); ++s) {
        const Step& step = steps[at(s)];
        if (step.chunks < 1) add(Fault::shape, rank, s, "its message has no chunk");
        const int last = step.chunks - 1;
        if (step.sends())
          endpoint(rank, s, "sends to", step.send_peer, step.send_chunk, last, false);
        if (step.receives())
          endpoint(rank, s, "receives from", step.recv_peer, step.recv_chunk, last,
                   schedule_.separate_input);
      }
    }
  }

  void endpoint(int rank, int step, const char* does, int peer, int chunk, int last,
                bool may_be_self) {
    if (peer < 0 || peer >= schedule_.world)
      add(Fault::shape, rank, step,
          std::string(does) + " rank " + number(peer) + ", which does not exist");
    if (peer == rank && !may_be_self) add(Fault::shape, rank, step, std::string(does) + " itself");
    if (chunk < 0 || at(chunk + last) >= schedule_.chunks.size())
      add(Fault::shape, rank, step,
          std::string(does) + " rank " + number(peer) + " chunk " + number(chunk + last) + " of " +
              number(schedule_.chunks.size()));
  }

  void chunks() {
    const Contract contract = contract_of(schedule_.collective);
    const bool one_per_rank = contract.divides() || contract.exchanges;
    if (one_per_rank && schedule_.chunks.size() != at(schedule_.world))
      add(Fault::shape, -1, -1,
          std::string(name_of(schedule_.collective)) + " has one chunk for each rank, not " +
              number(schedule_.chunks.size()));
    std::vector<std::size_t> order;  // chunks by position in the buffer, without empty ones
    for (std::size_t c = 0; c < schedule_.chunks.size(); ++c) {
      const Chunk& chunk = schedule_.chunks[c];
      if (chunk.count > schedule_.count || chunk.offset > schedule_.count - chunk.count)
        add(Fault::chunk_outside, -1, -1,
            "chunk " + number(c) + " ends at element " + number(chunk.offset + chunk.count) +
                " of a buffer of " + number(schedule_.count));
      if (chunk.count > 0) order.push_back(c);
    }
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return schedule_.chunks[a].offset < schedule_.chunks[b].offset;
    });
    std::size_t end = 0;
    for (const std::size_t c : order) {
      const Chunk& chunk = schedule_.chunks[c];
      if (chunk.offset < end)
        add(Fault::chunk_overlap, -1, -1,
            "chunk " + number(c) + " begins at element " + number(chunk.offset) +
                ", inside the chunk before it, which ends at " + number(end));
      if (chunk.offset > end)
        add(Fault::chunk_gap, -1, -1,
            "elements " + number(end) + " to " + number(chunk.offset - 1) + " are in no chunk");
      end = std::max(end, chunk.offset + chunk.count);
    }
    if (end < schedule_.count)
      add(Fault::chunk_gap, -1, -1,
          "elements " + number(end) + " to " + number(schedule_.count - 1) + " are in no chunk");
  }

  // ---- 2. messages ----
  struct ChunkEnd {
    int step, chunk;
    int of;  // number of chunks in its message
  };

  void messages() {
    for (int from = 0; from < schedule_.world; ++from)
      for (int to = 0; to < schedule_.world; ++to)
        if (from != to) pair(from, to);
  }

  void pair(int from, int to) {
    std::vector<ChunkEnd> sends, receives;  // one entry per chunk
    const auto note = [](std::vector<ChunkEnd>& ends, int step, int chunk, int chunks) {
      for (int i = 0; i < chunks; ++i) ends.push_back({step, chunk + i, chunks});
    };
    for (int s = 0; s < static_cast<int>(schedule_.steps[at(from)].size()); ++s)
      if (const Step& step = schedule_.steps[at(from)][at(s)]; step.send_peer == to)
        note(sends, s, step.send_chunk, step.chunks);
    for (int s = 0; s < static_cast<int>(schedule_.steps[at(to)].size()); ++s)
      if (const Step& step = schedule_.steps[at(to)][at(s)]; step.recv_peer == from)
        note(receives, s, step.recv_chunk, step.chunks);
    for (std::size_t i = 0; i < std::min(sends.size(), receives.size()); ++i) {
      const std::size_t sent = schedule_.chunks[at(sends[i].chunk)].count;
      const std::size_t taken = schedule_.chunks[at(receives[i].chunk)].count;
      if (sent != taken || sends[i].of != receives[i].of)
        add(Fault::size_mismatch, to, receives[i].step,
            "takes message " + number(i) + " from rank " + number(from) + " as chunk " +
                number(receives[i].chunk) + " of " + number(taken) + " elements" +
                several(receives[i].of) + ", but it is chunk " + number(sends[i].chunk) + " of " +
                number(sent) + several(sends[i].of) + " (step " + number(sends[i].step) + ")");
    }
    for (std::size_t i = receives.size(); i < sends.size(); ++i)
      add(Fault::unmatched_send, from, sends[i].step,
          "sends chunk " + number(sends[i].chunk) + " to rank " + number(to) +
              ", which never receives it");
    for (std::size_t i = sends.size(); i < receives.size(); ++i)
      add(Fault::unmatched_receive, to, receives[i].step,
          "waits for a message from rank " + number(from) + " that is never sent");
  }

  static std::string several(int chunks) {
    return chunks == 1 ? "" : " in a message of " + number(chunks) + " chunks";
  }

  // ---- 3. progress ----
  void progress() {
    for (const LinkModel& wires : options_.wires) {
      const std::vector<Blocked> blocked = interpret(schedule_, wires);
      if (blocked.empty()) continue;
      const Blocked& first = blocked.front();
      add(Fault::deadlock, first.rank, first.step,
          "with " + number(wires.slots) + (wires.slots == 1 ? " slot" : " slots") +
              (wires.streamed ? " (streamed)" : "") + ": " + circle(blocked));
    }
  }

  // Follows the waits from a blocked rank until a rank repeats.
  static std::string circle(const std::vector<Blocked>& blocked) {
    const auto find = [&](int rank) {
      return std::find_if(blocked.begin(), blocked.end(),
                          [&](const Blocked& b) { return b.rank == rank; });
    };
    std::vector<int> seen;
    auto here = blocked.begin();
    while (here != blocked.end() && std::find(seen.begin(), seen.end(), here->rank) == seen.end()) {
      seen.push_back(here->rank);
      here = find(here->peer);
    }
    if (here != blocked.end())
      seen.erase(seen.begin(), std::find(seen.begin(), seen.end(), here->rank));
    std::string out;
    for (const int rank : seen) {
      const auto b = find(rank);
      out += (out.empty() ? "" : "; ") + std::string("rank ") + number(rank) + " at step " +
             number(b->step) +
             (b->sending ? " waits for a free slot to rank " : " waits for a message from rank ") +
             number(b->peer);
    }
    return out;
  }

  // ---- 4. values ----
  void values() {
    Contributions contributions(schedule_);
    (void)interpret(schedule_, {}, contributions);
    for (int rank = 0; rank < schedule_.world; ++rank)
      for (int chunk = 0; chunk < static_cast<int>(schedule_.chunks.size()); ++chunk)
        if (const Value promised = promised_value(schedule_, rank, chunk);
            !promised.empty() && schedule_.chunks[at(chunk)].count > 0)
          compare(contributions, rank, chunk, promised);
  }

  void compare(const Contributions& contributions, int rank, int chunk, const Value& promised) {
    const Value& value = contributions.value(rank, chunk);
    if (value == promised) return;
    const int step = contributions.last_written(rank, chunk);
    const std::string who = "chunk " + number(chunk) + " ";
    const auto held = [&](const Origin& origin) {
      return std::find(value.begin(), value.end(), origin) != value.end();
    };
    if (held(kUndefined))
      return add(Fault::undefined_data, rank, step,
                 who + "is computed from memory that held no valid data");
    Value foreign, missing, doubled;
    std::set_difference(promised.begin(), promised.end(), value.begin(), value.end(),
                        std::back_inserter(missing));
    for (auto one = value.begin(); one != value.end(); ++one) {
      if (std::find(promised.begin(), promised.end(), *one) == promised.end())
        foreign.push_back(*one);
      else if (one != value.begin() && *one == *std::prev(one))
        doubled.push_back(*one);
    }
    if (!foreign.empty())
      add(Fault::foreign, rank, step,
          who + "holds data that does not belong there: " + text_of(foreign));
    if (!doubled.empty())
      add(Fault::doubled, rank, step, who + "holds more than once: " + text_of(doubled));
    if (missing.empty()) return;
    for (int other = 0; other < schedule_.world; ++other)
      if (other != rank && contributions.value(other, chunk) == promised &&
          promised_value(schedule_, other, chunk).empty())
        return add(Fault::wrong_owner, rank, step,
                   who + "is complete on rank " + number(other) + ", but promised on rank " +
                       number(rank));
    std::string reason = who + "lacks " + text_of(missing);
    for (const auto& loss : contributions.losses())
      if (std::find(loss.lost.begin(), loss.lost.end(), missing.front()) != loss.lost.end()) {
        reason +=
            "; a copy overwrote it on rank " + number(loss.rank) + " at step " + number(loss.step);
        break;
      }
    add(Fault::missing, rank, step, reason);
  }

  // ---- 5. cost ----
  void cost() {
    const auto promised = promised_cost(schedule_);
    if (!promised) return;
    const Promise counted = counted_cost(schedule_);
    const auto differ = [&](const char* what, std::size_t is, std::size_t should) {
      if (is != should)
        add(Fault::cost, -1, -1,
            std::string(name_of(schedule_.algorithm)) + " promises " + number(should) + " " + what +
                ", this takes " + number(is));
    };
    differ("steps", at(counted.steps), at(promised->steps));
    differ("elements sent by the busiest rank", counted.busiest, promised->busiest);
    differ("elements sent in all", counted.total, promised->total);
  }

  const Schedule& schedule_;
  const CheckOptions& options_;
  std::vector<Violation> findings_;
};

}  // namespace

const char* name_of(Fault fault) {
  constexpr const char* kNames[] = {"shape",          "chunk outside the buffer",
                                    "chunks overlap", "gap between chunks",
                                    "unmatched send", "unmatched receive",
                                    "size mismatch",  "deadlock",
                                    "undefined data", "missing contribution",
                                    "doubled",        "foreign contribution",
                                    "wrong owner",    "cost",
                                    "memory"};
  return kNames[static_cast<std::size_t>(fault)];
}

std::string Violation::describe() const {
  std::string place;
  if (rank >= 0) place = "rank " + number(rank);
  if (step >= 0) place += (place.empty() ? "step " : ", step ") + number(step);
  return (place.empty() ? "" : place + ": ") + name_of(fault) + ": " + reason;
}

std::vector<Violation> check(const Schedule& schedule, const CheckOptions& options) {
  return Checker(schedule, options).run();
}

namespace {

// Every rank r sends the whole buffer except chunk r + shift.
void add_all_but_one(std::vector<std::size_t>& sent, const Schedule& schedule, int shift) {
  for (int rank = 0; rank < schedule.world; ++rank)
    sent[static_cast<std::size_t>(rank)] +=
        schedule.count -
        schedule.chunks.at(static_cast<std::size_t>(wrap(rank + shift, schedule.world))).count;
}

// Every rank sends its own chunk to every other rank.
void add_own_to_all(std::vector<std::size_t>& sent, const Schedule& schedule) {
  for (std::size_t rank = 0; rank < sent.size(); ++rank)
    sent[rank] += (sent.size() - 1) * schedule.chunks.at(rank).count;
}

Promise from(int steps, const std::vector<std::size_t>& sent) {
  Promise promise{steps, 0, 0};
  for (const std::size_t elements : sent) {
    promise.busiest = std::max(promise.busiest, elements);
    promise.total += elements;
  }
  return promise;
}

// The cost by the table in hierarchical.hpp. In addition, each rank beyond the first m of its node
// (m: size of the smallest node) sends the whole buffer once and receives it once.
Promise hierarchical_cost(const Schedule& schedule) {
  const auto nodes = ranks_of_nodes(schedule.node_of, schedule.world);
  const int n = static_cast<int>(nodes.size());
  std::size_t m = nodes[0].size(), most = 0;
  for (const auto& node : nodes) m = std::min(m, node.size()), most = std::max(most, node.size());
  std::vector<std::size_t> sent(static_cast<std::size_t>(schedule.world), 0);
  for (int a = 0; a < n; ++a) {
    const auto& node = nodes[static_cast<std::size_t>(a)];
    for (std::size_t l = 0; l < node.size(); ++l) {
      std::size_t& mine = sent[static_cast<std::size_t>(node[l])];
      if (l >= m) {
        mine = schedule.count;
        continue;
      }
      const int first = static_cast<int>(l) * n;
      const std::size_t part = message_count(schedule, first, n);
      mine = schedule.count - part + (m - 1) * part;
      if (n > 1)
        mine += 2 * part - message_count(schedule, first + a, 1) -
                message_count(schedule, first + (a + 1) % n, 1);
      mine += (node.size() - 1 - l) / m * schedule.count;
    }
  }
  const int folds = static_cast<int>((most - 1) / m);  // NOLINT(*-DivideZero): none is empty
  return from(2 * static_cast<int>(m - 1) + 2 * (n - 1) + 2 * folds, sent);
}

Promise halving_cost(const Schedule& schedule) {
  const int p = halving_core(schedule.world), beyond = schedule.world - p;
  std::vector<std::size_t> sent(static_cast<std::size_t>(schedule.world), schedule.count);
  for (int rank = 0; rank < p; ++rank) {
    std::size_t& mine = sent[static_cast<std::size_t>(rank)];
    mine = (rank < beyond ? 2 : 1) * schedule.count - message_count(schedule, rank, 1);
    for (int held = 1; held < p; held *= 2)
      mine += message_count(schedule, rank / held * held, held);
  }
  return from(2 * tree_rounds(p) + (beyond > 0 ? 2 : 0), sent);
}

Promise double_tree_cost(const Schedule& schedule) {
  const int pieces = static_cast<int>(schedule.chunks.size()) / 2;
  std::vector<std::size_t> sent(static_cast<std::size_t>(schedule.world), 0);
  int neighbours = 0;
  for (int rank = 0; rank < schedule.world; ++rank) {
    int mine = 0;
    for (const int tree : {0, 1}) {
      const int degree = double_tree_node(schedule.world, rank, tree).degree();
      mine += degree;
      sent[static_cast<std::size_t>(rank)] +=
          static_cast<std::size_t>(degree) * message_count(schedule, tree * pieces, pieces);
    }
    neighbours = std::max(neighbours, mine);
  }
  return from(2 * pieces * neighbours, sent);
}

}  // namespace

std::optional<Promise> promised_cost(const Schedule& schedule) {
  const Algorithm algorithm = schedule.algorithm;
  const int world = schedule.world, hops = world - 1;
  const auto ranks = static_cast<std::size_t>(world),
             root = static_cast<std::size_t>(schedule.root);
  const std::size_t count = schedule.count;
  const bool ring = algorithm == Algorithm::ring, gloo = algorithm == Algorithm::gloo_ring;
  const bool direct = algorithm == Algorithm::direct, tree = algorithm == Algorithm::tree;
  const auto rounds = static_cast<std::size_t>(tree_rounds(world));
  std::vector<std::size_t> sent(ranks, 0);  // elements, by rank
  int steps = hops;
  switch (schedule.collective) {
    case Collective::all_reduce:
      if (ring || gloo) {
        steps = 2 * hops;
        add_all_but_one(sent, schedule, 0);
        add_all_but_one(sent, schedule, ring ? +1 : -1);
      } else if (algorithm == Algorithm::direct) {
        steps = 2 * hops;
        add_all_but_one(sent, schedule, 0);
        add_own_to_all(sent, schedule);
      } else if (algorithm == Algorithm::one_shot) {
        return Promise{2 * hops + 1, (ranks - 1) * count, ranks * (ranks - 1) * count};
      } else if (tree) {
        return Promise{2 * static_cast<int>(rounds), rounds * count, 2 * (ranks - 1) * count};
      } else if (algorithm == Algorithm::hierarchical) {
        return hierarchical_cost(schedule);
      } else if (algorithm == Algorithm::halving_doubling) {
        return halving_cost(schedule);
      } else if (algorithm == Algorithm::double_tree) {
        return double_tree_cost(schedule);
      } else {
        return std::nullopt;
      }
      break;
    case Collective::reduce_scatter:
      if (!ring && !direct) return std::nullopt;
      add_all_but_one(sent, schedule, 0);
      break;
    case Collective::all_gather:
      if (ring)
        add_all_but_one(sent, schedule, +1);
      else if (direct)
        add_own_to_all(sent, schedule);
      else
        return std::nullopt;
      break;
    case Collective::broadcast:
      if (tree) return Promise{static_cast<int>(rounds), rounds * count, (ranks - 1) * count};
      if (!direct) return std::nullopt;
      sent[root] = (ranks - 1) * count;
      break;
    case Collective::reduce:
      if (tree)
        return Promise{static_cast<int>(rounds), world > 1 ? count : 0, (ranks - 1) * count};
      if (!direct) return std::nullopt;
      sent.assign(ranks, count);
      sent[root] = 0;
      break;
    case Collective::gather:
      if (!direct) return std::nullopt;
      for (std::size_t rank = 0; rank < ranks; ++rank) sent[rank] = schedule.chunks.at(rank).count;
      sent[root] = 0;
      break;
    case Collective::scatter:
      if (!direct) return std::nullopt;
      sent[root] = count - schedule.chunks.at(root).count;
      break;
    case Collective::all_to_all:
      if (!direct) return std::nullopt;
      steps = world;
      add_all_but_one(sent, schedule, 0);
      break;
    default:
      return std::nullopt;
  }
  return from(steps, sent);
}

Promise counted_cost(const Schedule& schedule) {
  Promise cost;
  for (const auto& steps : schedule.steps) {
    std::size_t sent = 0;
    for (const Step& step : steps)
      if (step.sends()) sent += message_count(schedule, step.send_chunk, step.chunks);
    cost.steps = std::max(cost.steps, static_cast<int>(steps.size()));
    cost.busiest = std::max(cost.busiest, sent);
    cost.total += sent;
  }
  return cost;
}

}  // namespace ringsmith::comm
