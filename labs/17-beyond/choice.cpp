// Runs the student's own hook. Each rank's hook is in a separate process, so that nothing reaches
// another rank but by collectives. The driver moves their bytes, and counts them.
#include LAB17_CHOICE

#include <bit>
#include <cstring>
#include <memory>
#include <optional>

#include "labs/17-beyond/on_ranks.hpp"
#include "labs/kit/separate/separate.hpp"

using namespace on_ranks;

namespace {

using Bytes = std::vector<std::byte>;

// The message of a hook's process to the driver. Its bytes, if any, follow.
struct Head {
  enum Kind : std::int64_t { enter, exchange, spread, averaged } kind;
  std::int64_t element = 0;  // bytes
  std::int64_t root = 0;     // spread
  std::int64_t size = 0;     // spread: bytes
};
constexpr std::size_t kKindBytes = 16;  // enter: a text of this length, and the counts

template <class T>
void add(Bytes& to, const T* data, std::size_t count) {
  const auto bytes = std::as_bytes(std::span(data, count));
  to.insert(to.end(), bytes.begin(), bytes.end());
}
// Reads a message piece by piece.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> message) : rest_(message) {}
  std::span<const std::byte> bytes(std::size_t count) {
    if (count > rest_.size()) throw std::runtime_error("a rank's message is too short");
    const auto found = rest_.first(count);
    rest_ = rest_.subspan(count);
    return found;
  }
  template <class T>
  std::vector<T> numbers(std::size_t count) {
    std::vector<T> found(count);
    const auto from = bytes(count * sizeof(T));
    if (count > 0) std::memcpy(found.data(), from.data(), from.size());
    return found;
  }
  [[nodiscard]] std::size_t left() const { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
};

// The network of a hook's process: the driver makes the calls.
class OnLine : public lab17::Network {
 public:
  OnLine(kit::Line& line, int rank, int world) : line_(line), rank_(rank), world_(world) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int world() const override { return world_; }

  void enter(const std::string& kind, const lab17::Counts& counts, std::size_t element) override {
    Bytes message = start({Head::enter, std::int64_t(element)});
    char name[kKindBytes] = {};
    kind.copy(name, kKindBytes - 1);
    add(message, name, kKindBytes);
    add(message, counts.data(), counts.size());
    line_.hold(message);  // needs no answer
  }
  void exchange(const Out& out, const In& in, std::size_t element) override {
    Bytes message = start({Head::exchange, std::int64_t(element)});
    for (const auto& part : out) {
      const std::uint64_t size = part.size();
      add(message, &size, 1);
    }
    for (const auto& part : out) add(message, part.data(), part.size());
    line_.write(message);
    const Bytes answer = reply();
    Reader reader(answer);
    for (std::size_t r = 0; r < in.size(); ++r)
      if (int(r) != rank_) std::ranges::copy(reader.bytes(in[r].size()), in[r].begin());
  }
  void spread(int root, std::span<std::byte> data, std::size_t element) override {
    Bytes message = start({Head::spread, std::int64_t(element), root, std::int64_t(data.size())});
    if (rank_ == root) add(message, data.data(), data.size());
    line_.write(message);
    const Bytes answer = reply();
    if (rank_ != root) std::ranges::copy(Reader(answer).bytes(data.size()), data.begin());
  }

 private:
  static Bytes start(const Head& head) {
    Bytes message;
    add(message, &head, 1);
    return message;
  }
  Bytes reply() { return line_.read().value_or(Bytes{}); }

  kit::Line& line_;
  int rank_, world_;
};

// In a hook's process: one bucket after the other.
void answer_buckets(kit::Line& line, int rank, int world, std::size_t budget) {
  OnLine network(line, rank, world);
  lab17::Group group(network);
  lab17::OwnHook hook(budget);
  while (const std::optional<Bytes> message = line.read()) {
    std::vector<float> data = Reader(*message).numbers<float>(message->size() / sizeof(float));
    try {
      hook(group, {0, data});
    } catch (const lab17::Disagreement& d) {
      throw kit::Misuse{d.message};
    }
    const Head head{Head::averaged};
    Bytes answer;
    add(answer, &head, 1);
    add(answer, data.data(), data.size());
    line.write(answer);
  }
}

// In the driver: the processes of all ranks, and the messages between them.
class Switch {
 public:
  Switch(int world, std::size_t budget) : sent(std::size_t(world), 0) {
    for (int r = 0; r < world; ++r)
      ranks_.push_back(std::make_unique<kit::Separate>(
          "rank " + std::to_string(r),
          [=](kit::Line& line) { answer_buckets(line, r, world, budget); }));
    calls_.resize(ranks_.size());
    next_.resize(ranks_.size());
  }

  // Passes each rank's gradient through its hook.
  std::vector<std::vector<float>> hooked(const std::vector<std::vector<float>>& gradients) {
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      ranks_[r]->write(std::as_bytes(std::span(gradients[r])));
    for (;;) {
      std::vector<Bytes> messages;
      std::vector<Head> heads;
      std::size_t returned = 0;
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        messages.push_back(next_call(r));
        heads.push_back(Reader(messages[r]).numbers<Head>(1)[0]);
        returned += heads[r].kind == Head::averaged;
      }
      if (returned == ranks_.size()) return results(messages);
      if (returned > 0) throw kit::Hang{report(heads)};
      move(messages, heads);
    }
  }

  std::vector<std::int64_t> sent;  // bytes of each rank, to other ranks

 private:
  // Returns a rank's next message that is not an enter.
  Bytes next_call(std::size_t rank) {
    for (;;) {
      Bytes message = ranks_[rank]->read();
      Reader reader(message);
      const Head head = reader.numbers<Head>(1)[0];
      if (head.kind != Head::enter) return message;
      const auto kind = reader.numbers<char>(kKindBytes);
      const auto counts = reader.numbers<std::size_t>(reader.left() / sizeof(std::size_t));
      calls_[rank] = lab17::text_of(kind.data(), counts, std::size_t(head.element));
      log_.note(next_[rank]++, calls_[rank], int(rank));
    }
  }

  void move(const std::vector<Bytes>& messages, const std::vector<Head>& heads) {
    std::vector<Bytes> answers(ranks_.size());
    for (std::size_t from = 0; from < ranks_.size(); ++from) {
      Reader reader(messages[from]);
      (void)reader.numbers<Head>(1);
      const bool everyone = heads[from].kind == Head::exchange;
      const std::vector<std::uint64_t> sizes =
          everyone ? reader.numbers<std::uint64_t>(ranks_.size()) : std::vector<std::uint64_t>{};
      if (!everyone && heads[from].root != std::int64_t(from)) continue;
      for (std::size_t to = 0; to < ranks_.size(); ++to) {
        const auto part = everyone
                              ? reader.bytes(sizes[to])
                              : std::span<const std::byte>(messages[from]).subspan(sizeof(Head));
        if (to == from) continue;
        answers[to].insert(answers[to].end(), part.begin(), part.end());
        sent[from] += std::int64_t(part.size());
      }
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) ranks_[r]->write(answers[r]);
  }

  static std::vector<std::vector<float>> results(const std::vector<Bytes>& messages) {
    std::vector<std::vector<float>> found;
    for (const Bytes& message : messages) {
      Reader reader(message);
      (void)reader.numbers<Head>(1);
      found.push_back(reader.numbers<float>(reader.left() / sizeof(float)));
    }
    return found;
  }

  std::string report(const std::vector<Head>& heads) {
    std::string text = "no rank can continue";
    for (std::size_t r = 0; r < heads.size(); ++r) {
      text += "\n  rank " + std::to_string(r) + ": ";
      text += heads[r].kind == Head::averaged
                  ? "has returned from its hook"
                  : "waits in " + calls_[r] + ", its collective #" + std::to_string(next_[r] - 1);
    }
    return text;
  }

  std::vector<std::unique_ptr<kit::Separate>> ranks_;
  std::vector<std::string> calls_;  // each rank's current collective
  std::vector<std::size_t> next_;   // each rank's number of earlier collectives
  Log log_;
};

std::int64_t hash_of(std::span<const float> values) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const float value : values)
    hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001B3;
  return std::int64_t(hash);
}

}  // namespace

// Trains on `world` ranks. The gradient of parameter i on rank r is, in step s,
//   curvature[i] * (value[i] - target[i]) + bias.r[i] + noise[(1009 s + 4001 r + i) % noise.size()]
// Reports, for each rank, the values at the end, and for each step a hash of the hook's result and
// the bytes sent so far.
KIT_SCENARIO(choice) {
  const auto world = std::size_t(in.integer("world"));
  const std::vector<float> curvature = in.floats("curvature"), target = in.floats("target"),
                           noise = in.floats("noise");
  const float lr = float(in.number("lr"));
  Switch ranks(int(world), std::size_t(in.integer("budget")));
  std::vector<std::vector<float>> bias, values(world, std::vector<float>(target.size())),
      gradients = values;
  for (std::size_t r = 0; r < world; ++r) bias.push_back(in.floats(of_rank("bias", int(r))));
  std::vector<std::vector<std::int64_t>> hashes(world), sent(world);
  try {
    for (std::size_t step = 0; step < std::size_t(in.integer("steps")); ++step) {
      for (std::size_t r = 0; r < world; ++r)
        for (std::size_t i = 0; i < target.size(); ++i)
          gradients[r][i] = curvature[i] * (values[r][i] - target[i]) + bias[r][i] +
                            noise[(1009 * step + 4001 * r + i) % noise.size()];
      const auto used = ranks.hooked(gradients);
      for (std::size_t rank = 0; rank < world; ++rank) {
        if (used[rank].size() != target.size())
          throw std::runtime_error("the bucket has another size after the hook");
        for (std::size_t i = 0; i < target.size(); ++i) values[rank][i] -= lr * used[rank][i];
        hashes[rank].push_back(hash_of(used[rank]));
        sent[rank].push_back(ranks.sent[rank]);
      }
    }
  } catch (const lab17::Disagreement& d) {
    throw kit::Misuse{d.message};
  }
  for (std::size_t rank = 0; rank < world; ++rank) {
    out.put(of_rank("values", int(rank)), values[rank]);
    out.put(of_rank("hashes", int(rank)), hashes[rank]);
    out.put(of_rank("sent", int(rank)), sent[rank]);
  }
}
