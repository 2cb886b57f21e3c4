// Unusual and correct: free slots are a list of numbers, and a message's value names its slot, so
// slots may be used in any order. A credit returns the number. A step is received into a buffer as
// long as a chunk, and is added or copied when all of it has arrived.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>
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
      : end_(end), in_(inbox), out_(outbox), slot_(slots.bytes) {
    for (int i = slots.count; i-- > 0;) free_.push_back(std::uint32_t(i));
  }
  [[nodiscard]] std::size_t slot_bytes() const { return slot_; }

  [[nodiscard]] bool try_send(std::span<const std::byte> message) {
    sort_out();
    if (free_.empty()) return false;
    const std::uint32_t number = free_.back();  // the slot returned most recently
    free_.pop_back();
    std::copy(message.begin(), message.end(), out_.begin() + std::ptrdiff_t(number * slot_));
    end_.put(number * slot_, number * slot_, message.size(),
             number << 24 | std::uint32_t(message.size()));
    return true;
  }

  [[nodiscard]] std::optional<std::size_t> try_receive(std::span<std::byte> message) {
    sort_out();
    if (waiting_.empty()) return std::nullopt;
    const std::uint32_t value = waiting_.front();
    waiting_.pop_front();
    const std::size_t length = value & 0xffffff, at = std::size_t(value >> 24) * slot_;
    std::copy_n(in_.begin() + std::ptrdiff_t(at), length, message.begin());
    end_.put(0, 0, 0, value | back);
    return length;
  }

 private:
  static constexpr std::uint32_t back = 1U << 31;
  void sort_out() {
    for (std::optional<std::uint32_t> value; (value = end_.poll());) {
      if (*value & back)
        free_.push_back((*value & ~back) >> 24);
      else
        waiting_.push_back(*value);
    }
  }
  Endpoint& end_;
  std::span<std::byte> in_, out_;
  std::size_t slot_;
  std::vector<std::uint32_t> free_;
  std::deque<std::uint32_t> waiting_;
};

template <class T, class Channel>
void all_reduce(Channel& right, Channel& left, int rank, int world, std::span<T> work,
                const std::function<void()>& idle) {
  const auto begin_of = [&](int c) {
    const std::size_t i = std::size_t(c), w = std::size_t(world);
    return i * (work.size() / w) + std::min(i, work.size() % w);
  };
  const auto chunk = [&](int c) {
    c = ((c % world) + world) % world;
    return work.subspan(begin_of(c), begin_of(c + 1) - begin_of(c));
  };
  const std::size_t most = right.slot_bytes() / sizeof(T);
  for (int step = 0; step < 2 * world - 2; ++step) {
    const std::span<T> out = chunk(rank - step), target = chunk(rank - step - 1);
    std::vector<T> landing(target.size());
    for (std::size_t sent = 0, got = 0; sent < out.size() || got < landing.size();) {
      const std::size_t before = sent + got;
      if (got < landing.size()) {
        const auto rest = std::span(landing).subspan(got, std::min(most, landing.size() - got));
        if (const auto length = left.try_receive(std::as_writable_bytes(rest)))
          got += *length / sizeof(T);
      }
      if (sent < out.size()) {
        const auto rest = out.subspan(sent, std::min(most, out.size() - sent));
        if (right.try_send(std::as_bytes(rest))) sent += rest.size();
      }
      if (sent + got == before) idle();
    }
    for (std::size_t i = 0; i < landing.size(); ++i) {
      if (step < world - 1)
        target[i] += landing[i];
      else
        target[i] = landing[i];
    }
  }
}

template <class Ring, class T, class Inside, class Across>
void hierarchical_all_reduce(Inside& inside, Across& across, std::span<T> work) {
  if (inside.world() == 1) return Ring::all_reduce(across, work);
  if (across.world() == 1) return Ring::all_reduce(inside, work);
  Ring::reduce_scatter(inside, work);
  const std::size_t n = std::size_t(inside.world()), me = std::size_t(inside.rank());
  const auto begin = [&](std::size_t i) {
    return i * (work.size() / n) + std::min(i, work.size() % n);
  };
  Ring::all_reduce(across, work.subspan(begin(me), begin(me + 1) - begin(me)));
  Ring::all_gather(inside, work);
}

}  // namespace lab12
