#include "runtime/comm/executor/mapping.hpp"

#include <algorithm>
#include <map>

namespace ringsmith::comm {

namespace {

struct MoveId {
  int rank = -1;
  int move = -1;
  bool operator==(const MoveId&) const = default;
};

// The destination of a message: Move::sources[source] of the move `at`.
struct MessageTarget {
  MoveId at;
  std::size_t source = 0;
};

class Mapper {
 public:
  Mapper(const Schedule& schedule, const std::vector<Plan>& plans, Placement placement)
      : schedule_(schedule), plans_(plans), placement_(placement) {}

  std::optional<std::vector<Mapping>> run() {
    if (!chunks_are_disjoint()) return std::nullopt;
    find_targets();
    for (int rank = 0; rank < schedule_.world; ++rank) {
      Mapping mapping;
      for (const Move& move : plans_[at(rank)]) {
        MappedMove mapped;
        mapped.count = schedule_.chunks[at(move.chunk)].count;
        mapped.chunk = move.chunk;
        mapped.step = move.step;
        mapping.moves.push_back(mapped);
      }
      mappings_.push_back(std::move(mapping));
    }
    for (int rank = 0; rank < schedule_.world; ++rank)
      if (!place_accesses(rank)) return std::nullopt;
    if (!can_finish()) return std::nullopt;
    for (Mapping& mapping : mappings_) {
      for (MappedMove& move : mapping.moves) tidy(move.after);
      tidy(mapping.finally);
    }
    mark_awaited();
    return std::move(mappings_);
  }

 private:
  bool chunks_are_disjoint() const {
    auto chunks = schedule_.chunks;
    std::erase_if(chunks, [](const Chunk& c) { return c.count == 0; });
    std::sort(chunks.begin(), chunks.end(),
              [](const Chunk& a, const Chunk& b) { return a.offset < b.offset; });
    for (std::size_t i = 1; i < chunks.size(); ++i)
      if (chunks[i].offset < chunks[i - 1].offset + chunks[i - 1].count) return false;
    return true;
  }

  // Pairs sends and receives in order. targets_[sender][move] has the order of Move::sends.
  void find_targets() {
    std::map<std::pair<int, int>, std::vector<MessageTarget>> incoming;  // by (from, to)
    for (int rank = 0; rank < schedule_.world; ++rank)
      for (std::size_t m = 0; m < plans_[at(rank)].size(); ++m) {
        const auto& sources = plans_[at(rank)][m].sources;
        for (std::size_t s = 0; s < sources.size(); ++s)
          if (sources[s].kind == Source::Kind::message)
            incoming[{sources[s].peer, rank}].push_back({{rank, static_cast<int>(m)}, s});
      }
    std::map<std::pair<int, int>, std::size_t> used;
    targets_.resize(plans_.size());
    for (int rank = 0; rank < schedule_.world; ++rank)
      for (const Move& move : plans_[at(rank)]) {
        auto& list = targets_[at(rank)].emplace_back();
        for (const int peer : move.sends)
          list.push_back(incoming[{rank, peer}][used[{rank, peer}]++]);
      }
  }

  [[nodiscard]] const Move& plan(MoveId id) const { return plans_[at(id.rank)][at(id.move)]; }
  MappedMove& mapped(MoveId id) { return mappings_[at(id.rank)].moves[at(id.move)]; }

  // True if the sender stores directly in the receiver's output: it does not just send its own
  // input, and the receiver would only copy the message.
  [[nodiscard]] bool is_push(MoveId sender, const MessageTarget& target) const {
    const auto computes = [](const Source& s) { return s.kind != Source::Kind::input; };
    const Move& sending = plan(sender);
    return std::any_of(sending.sources.begin(), sending.sources.end(), computes) &&
           plan(target.at).sources.size() == 1 && plan(target.at).keep;
  }

  [[nodiscard]] ChunkPlace place(int rank, bool in_input, int chunk) const {
    const std::size_t offset = placement_ == Placement::staged ? schedule_.chunks[at(chunk)].offset
                               : in_input ? input_offset(schedule_, rank, chunk)
                                          : output_offset(schedule_, rank, chunk);
    return {rank, in_input, offset, chunk};
  }

  void add_after(MoveId later, MoveId earlier) {
    if (later == earlier || earlier.rank < 0) return;
    mapped(later).after.push_back({earlier.rank, static_cast<std::uint32_t>(earlier.move + 1)});
  }

  // The move that last wrote one chunk of one rank, and the moves that have read it since.
  struct ChunkAccess {
    MoveId writer;
    std::vector<MoveId> readers;
  };

  bool place_accesses(int rank) {
    std::vector<ChunkAccess> input(schedule_.chunks.size()), output(schedule_.chunks.size());
    const auto memory = [&](bool in_input, int chunk) -> ChunkAccess& {
      const bool shared = placement_ == Placement::in_place;
      return in_input && !shared ? input[at(chunk)] : output[at(chunk)];
    };
    for (int m = 0; m < static_cast<int>(plans_[at(rank)].size()); ++m) {
      const MoveId id{rank, m};
      const Move& move = plan(id);
      MappedMove& mine = mapped(id);
      // Places the sources that this move reads itself. A pulled message is placed when its sender
      // is processed.
      mine.sources.resize(move.sources.size());
      mine.scaled.resize(move.sources.size());
      MoveId writer = id;  // of the chunk in this rank's output, if the move keeps it
      for (std::size_t s = 0; s < move.sources.size(); ++s) {
        const Source& source = move.sources[s];
        mine.scaled[s] = source.scaled;
        if (source.kind == Source::Kind::message) {
          const MoveId sender = senders_of(id, s);
          if (is_push(sender, {id, s})) {
            writer = sender;
            mine.sources[s] = place(rank, false, move.chunk);
            add_after(id, sender);
          }
          continue;
        }
        const bool in_input = source.kind == Source::Kind::input;
        mine.sources[s] = place(rank, in_input, source.chunk);
        if (!reads(id)) continue;
        ChunkAccess& read = memory(in_input, source.chunk);
        add_after(id, read.writer);
        read.readers.push_back(id);
      }
      bool stored = false;
      if (move.keep || kept_for_a_pull(id)) {
        if (placement_ != Placement::staged && !promised(schedule_, rank, move.chunk)) return false;
        ChunkAccess& written = memory(false, move.chunk);
        for (const MoveId reader : written.readers) add_after(writer, reader);
        add_after(writer, written.writer);
        written = {writer, {}};
        if (!(writer == id) && reads(id)) written.readers.push_back(id);  // may send it on
        mapped(writer).destinations.push_back(place(rank, false, move.chunk));
        if (!(writer == id)) finally(rank, writer);
        stored = true;
      }
      // Places the reads of this rank's memory by other ranks.
      for (const MessageTarget& target : targets_[at(rank)][at(m)]) {
        if (is_push(id, target)) continue;  // placed when the receiver's plan is processed
        const bool from_input = !stored && move.sources[0].kind == Source::Kind::input;
        const int chunk = move.chunk;
        if (!stored && move.sources.size() > 1) return false;
        MappedMove& reader = mapped(target.at);
        reader.sources.resize(plan(target.at).sources.size());
        reader.sources[target.source] = place(rank, from_input, chunk);
        ChunkAccess& read = memory(from_input, chunk);
        add_after(target.at, read.writer);
        read.readers.push_back(target.at);
        finally(rank, target.at);
      }
    }
    return true;
  }

  // False if the move only sends data that every receiver pulls, and so touches no memory itself.
  [[nodiscard]] bool reads(MoveId id) const {
    const auto& list = targets_[at(id.rank)][at(id.move)];
    return plan(id).keep || kept_for_a_pull(id) ||
           std::any_of(list.begin(), list.end(),
                       [&](const MessageTarget& r) { return is_push(id, r); });
  }

  // True if a peer pulls a chunk that this move computes. The chunk must be stored even if this
  // rank does not use it.
  [[nodiscard]] bool kept_for_a_pull(MoveId id) const {
    const Move& move = plan(id);
    const bool computes =
        std::any_of(move.sources.begin(), move.sources.end(),
                    [](const Source& s) { return s.kind == Source::Kind::message; });
    if (!computes) return false;
    const auto& list = targets_[at(id.rank)][at(id.move)];
    return std::any_of(list.begin(), list.end(),
                       [&](const MessageTarget& r) { return !is_push(id, r); });
  }

  [[nodiscard]] MoveId senders_of(MoveId receiver, std::size_t source) const {
    const int from = plan(receiver).sources[source].peer;
    for (std::size_t m = 0; m < targets_[at(from)].size(); ++m)
      for (const MessageTarget& r : targets_[at(from)][m])
        if (r.at == receiver && r.source == source) return {from, static_cast<int>(m)};
    return {};
  }

  void finally(int rank, MoveId id) {
    if (id.rank != rank)
      mappings_[at(rank)].finally.push_back({id.rank, static_cast<std::uint32_t>(id.move + 1)});
  }

  // False if the moves deadlock under their conditions.
  [[nodiscard]] bool can_finish() const {
    std::vector<std::size_t> done(mappings_.size(), 0);
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t rank = 0; rank < mappings_.size(); ++rank)
        while (done[rank] < mappings_[rank].moves.size()) {
          const auto& after = mappings_[rank].moves[done[rank]].after;
          if (!std::all_of(after.begin(), after.end(),
                           [&](const auto& a) { return done[at(a.rank)] >= a.moves; }))
            break;
          ++done[rank];
          progress = true;
        }
    }
    for (std::size_t rank = 0; rank < mappings_.size(); ++rank)
      if (done[rank] < mappings_[rank].moves.size()) return false;
    return true;
  }

  // Marks the moves that some rank waits for. The completion of the other moves is not published.
  void mark_awaited() {
    const auto mark = [&](const std::vector<MappedMove::After>& after) {
      for (const auto& [rank, moves] : after) mappings_[at(rank)].moves[moves - 1].awaited = true;
    };
    for (const Mapping& mapping : mappings_) {
      for (const MappedMove& move : mapping.moves)
        if (!move.destinations.empty()) mark(move.after);
      mark(mapping.finally);
    }
  }

  // Keeps only the latest condition per rank, which implies the others.
  static void tidy(std::vector<MappedMove::After>& after) {
    std::map<int, std::uint32_t> latest;
    for (const auto& [rank, moves] : after) latest[rank] = std::max(latest[rank], moves);
    after.clear();
    for (const auto& [rank, moves] : latest) after.push_back({rank, moves});
  }

  const Schedule& schedule_;
  const std::vector<Plan>& plans_;
  Placement placement_;
  std::vector<std::vector<std::vector<MessageTarget>>> targets_;  // [rank][move][send]
  std::vector<Mapping> mappings_;
};

}  // namespace

std::optional<std::vector<Mapping>> make_mappings(const Schedule& schedule,
                                                  const std::vector<Plan>& plans,
                                                  Placement placement) {
  return Mapper(schedule, plans, placement).run();
}

}  // namespace ringsmith::comm
