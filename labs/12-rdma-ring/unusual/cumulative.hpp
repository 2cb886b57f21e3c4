// Unusual and correct: a credit carries the total number of messages received, modulo 2^16, so one
// credit may stand for several. Bit 0 of a value distinguishes credits from lengths. The ring is a
// precomputed list of pieces, walked by two cursors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <queue>
#include <span>
#include <vector>

namespace lab12 {

struct Slots {
  std::size_t bytes = 64;
  int count = 4;
};

template <class Endpoint>
class Channel {
 public:
  Channel(Endpoint& end, std::span<std::byte> inbox, std::span<std::byte> outbox, Slots slots)
      : end_(end), inbox_(inbox), outbox_(outbox), slots_(slots) {}

  [[nodiscard]] std::size_t slot_bytes() const { return slots_.bytes; }

  [[nodiscard]] bool try_send(std::span<const std::byte> message) {
    if (under_way() >= slots_.count) hear();
    if (under_way() >= slots_.count) return false;
    const std::size_t place = (next_out_++ % std::size_t(slots_.count)) * slots_.bytes;
    for (std::size_t i = 0; i < message.size(); ++i) outbox_[place + i] = message[i];
    end_.put(place, place, message.size(), std::uint32_t(message.size()) << 1);
    sent_ = std::uint16_t(sent_ + 1);
    return true;
  }

  [[nodiscard]] std::optional<std::size_t> try_receive(std::span<std::byte> message) {
    if (came_.empty()) hear();
    if (came_.empty()) return {};
    const std::size_t length = came_.front();
    came_.pop();
    const std::size_t place = (next_in_++ % std::size_t(slots_.count)) * slots_.bytes;
    for (std::size_t i = 0; i < length; ++i) message[i] = inbox_[place + i];
    received_ = std::uint16_t(received_ + 1);
    // A credit is due once half of the slots are unacknowledged.
    const int unsaid = std::uint16_t(received_ - said_);
    if (unsaid * 2 >= slots_.count) {
      end_.put(0, 0, 0, std::uint32_t(received_) << 1 | 1);
      said_ = received_;
    }
    return length;
  }

 private:
  [[nodiscard]] int under_way() const { return std::uint16_t(sent_ - acknowledged_); }
  void hear() {
    while (auto value = end_.poll())
      if (*value & 1)
        acknowledged_ = std::uint16_t(*value >> 1);
      else
        came_.push(*value >> 1);
  }

  Endpoint& end_;
  std::span<std::byte> inbox_, outbox_;
  Slots slots_;
  std::size_t next_out_ = 0, next_in_ = 0;
  std::uint16_t sent_ = 0, acknowledged_ = 0, received_ = 0, said_ = 0;
  std::queue<std::size_t> came_;
};

template <class T, class Channel>
void all_reduce(Channel& right, Channel& left, int rank, int world, std::span<T> work,
                const std::function<void()>& idle) {
  struct Piece {
    std::span<T> part;
    int needs;  // number of pieces that must have been received before this one may be sent
    bool adds;
  };
  const std::size_t most = right.slot_bytes() / sizeof(T);
  const auto pieces_of = [&](int index) {
    index = (index % world + world) % world;
    const std::size_t n = work.size(), w = std::size_t(world), i = std::size_t(index);
    const std::size_t first = i * (n / w) + std::min(i, n % w);
    std::span<T> chunk = work.subspan(first, n / w + (i < n % w));
    std::vector<std::span<T>> pieces;
    for (; !chunk.empty(); chunk = chunk.subspan(pieces.back().size()))
      pieces.push_back(chunk.first(std::min(most, chunk.size())));
    return pieces;
  };
  std::vector<Piece> outs, ins;
  for (int step = 0; step < 2 * (world - 1); ++step) {
    // The data sent in this step was received, piece by piece, in the step before.
    int before = int(ins.size());
    if (step > 0) before -= int(pieces_of(rank - 1 - step).size());
    for (const auto& part : pieces_of(rank - 1 - step))
      outs.push_back({part, step == 0 ? 0 : ++before, false});
    for (const auto& part : pieces_of(rank - 2 - step)) ins.push_back({part, 0, step < world - 1});
  }
  std::size_t sent = 0, received = 0;
  std::vector<T> landing(most);
  while (sent < outs.size() || received < ins.size()) {
    bool moved = false;
    while (received < ins.size()) {
      const auto& [part, needs, adds] = ins[received];
      if (!left.try_receive(std::as_writable_bytes(std::span<T>(landing)))) break;
      for (std::size_t i = 0; i < part.size(); ++i) {
        if (!adds) part[i] = T{};
        part[i] += landing[i];
      }
      ++received;
      moved = true;
    }
    while (sent < outs.size() && std::size_t(outs[sent].needs) <= received &&
           right.try_send(std::as_bytes(outs[sent].part))) {
      ++sent;
      moved = true;
    }
    if (!moved) idle();
  }
}

template <class Ring, class T, class Inside, class Across>
void hierarchical_all_reduce(Inside& inside, Across& across, std::span<T> work) {
  Ring::reduce_scatter(inside, work);
  std::size_t first = 0, length = 0;
  for (int r = 0; r <= inside.rank(); ++r) {
    first += length;
    const std::size_t w = std::size_t(inside.world());
    length = work.size() / w + (std::size_t(r) < work.size() % w);
  }
  const std::span<T> mine = work.subspan(first, length);
  Ring::reduce_scatter(across, mine);
  Ring::all_gather(across, mine);
  Ring::all_gather(inside, work);
}

}  // namespace lab12
