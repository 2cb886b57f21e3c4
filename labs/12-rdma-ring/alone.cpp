// Runs lab 12 without a device: the student's channels between two ends whose messages arrive
// immediately, and the ring between neighbours that fall silent.
#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <optional>
#include <stdexcept>

#include "labs/kit/driver.hpp"

#include LAB12_RING

namespace {

// Endpoint whose put() makes the message available at the peer before it returns. put() copies the
// bytes out of the outbox or, if `late`, the peer's poll() does, because a device may do either.
struct End {
  struct Put {
    std::size_t from, to, bytes;
    std::uint32_t value;
  };
  std::vector<std::byte> inbox, outbox;
  std::deque<Put> arrived;
  End* peer = nullptr;
  bool late = false;

  void put(std::size_t from, std::size_t to, std::size_t bytes, std::uint32_t value) {
    if (from > outbox.size() || bytes > outbox.size() - from || to > inbox.size() ||
        bytes > inbox.size() - to)
      throw kit::Misuse{"put: outside of the outbox or the inbox"};
    peer->arrived.push_back({from, to, bytes, value});
    if (!late) peer->take_bytes(peer->arrived.back());
  }
  std::optional<std::uint32_t> poll() {
    if (arrived.empty()) return std::nullopt;
    const Put next = arrived.front();
    arrived.pop_front();
    if (late) take_bytes(next);
    return next.value;
  }
  void take_bytes(const Put& put) {
    std::copy_n(peer->outbox.begin() + std::ptrdiff_t(put.from), put.bytes,
                inbox.begin() + std::ptrdiff_t(put.to));
  }
};

using Channel = lab12::Channel<End>;

// Ages two channels by nearly 2^32 messages. After a first round of messages, a word that grows by
// round_messages in each of the next two rounds is taken for a message counter, and is advanced by
// `skipped`. 243 is odd, so no pointer grows by it. 243 and `skipped` are multiples of 3, the
// number of slots, so the positions in the slots still agree.
constexpr std::uint64_t round_messages = 243;
constexpr std::uint64_t skipped = (std::uint64_t{1} << 32) - 1 - 3 * round_messages - 30;

template <class Word>
void count_on(std::byte* at, const std::byte* before, const std::byte* long_before) {
  Word now, then, first;
  std::memcpy(&now, at, sizeof now);
  std::memcpy(&then, before, sizeof then);
  std::memcpy(&first, long_before, sizeof first);
  if (Word(now - then) != round_messages || Word(then - first) != round_messages) return;
  now = Word(now + skipped);
  std::memcpy(at, &now, sizeof now);
}

template <class Pass>
void grow_old(std::span<Channel> channels, Pass pass) {
  std::array<std::vector<std::byte>, 2> seen;
  const std::span<std::byte> bytes = std::as_writable_bytes(channels);
  const auto round = [&] {
    for (std::uint64_t i = 0; i < round_messages; ++i) pass();
  };
  round();
  for (std::vector<std::byte>& state : seen) {
    state.assign(bytes.begin(), bytes.end());
    round();
  }
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    const std::byte *before = &seen[1][at], *long_before = &seen[0][at];
    const std::vector<std::byte> now(&bytes[at], &bytes[at] + 8);
    count_on<std::uint64_t>(&bytes[at], before, long_before);
    if (!std::equal(now.begin(), now.end(), &bytes[at])) continue;
    count_on<std::uint32_t>(&bytes[at], before, long_before);
    count_on<std::uint32_t>(&bytes[at + 4], before + 4, long_before + 4);
  }
}

// A neighbour that dies: it accepts or delivers `pieces` pieces of zeros, then nothing.
struct Silent {
  std::int64_t pieces;
  std::int64_t* tries;  // tries since the last idle()
  [[nodiscard]] std::size_t slot_bytes() const { return 4 * sizeof(float); }
  bool moves() {
    if (++*tries > 1000) throw std::runtime_error("1000 tries without idle()");
    return pieces-- > 0;
  }
  bool try_send(std::span<const std::byte>) { return moves(); }
  std::optional<std::size_t> try_receive(std::span<std::byte> message) {
    if (!moves()) return std::nullopt;
    std::fill(message.begin(), message.end(), std::byte{0});
    return message.size();
  }
};

}  // namespace

// Performs deeds. 0, 1: end 0 or 1 tries to send its next message, of lengths[0], lengths[1], ...
// bytes. 2, 3: end 0 or 1 tries to receive. Reports for each deed whether the message was sent, or
// the length received, or -1 if there was none. late: the peer's poll() copies the bytes. old:
// nearly 2^32 messages went from end 0 to end 1 before.
KIT_SCENARIO(at_once) {
  const std::vector<std::int64_t> lengths = in.integers("lengths"), deeds = in.integers("deeds");
  const lab12::Slots slots{std::size_t(in.integer("slot_bytes")), int(in.integer("slots"))};
  std::array<End, 2> ends;
  for (std::size_t side = 0; side < 2; ++side) {
    ends[side].inbox.assign(slots.bytes * std::size_t(slots.count), std::byte{0xEE});
    ends[side].outbox = ends[side].inbox;
    ends[side].peer = &ends[1 - side];
    ends[side].late = in.integer("late", 0) != 0;
  }
  std::array<Channel, 2> channels{Channel(ends[0], ends[0].inbox, ends[0].outbox, slots),
                                  Channel(ends[1], ends[1].inbox, ends[1].outbox, slots)};
  std::vector<std::byte> buffer(slots.bytes);
  if (in.integer("old", 0) != 0)
    grow_old(channels, [&] {
      if (!channels[0].try_send(std::span<const std::byte>(buffer)) ||
          !channels[1].try_receive(std::span(buffer)))
        throw kit::Misuse{"one message after the other: one was not sent, or not received"};
    });
  const auto pattern = [](std::size_t from, std::size_t m, std::size_t i) {
    return std::byte(from * 91 + m * 37 + i);
  };
  std::array<std::size_t, 2> sent{}, came{};
  std::vector<std::int64_t> results;
  std::int64_t wrong = 0;
  for (const std::int64_t deed : deeds) {
    const std::size_t side = std::size_t(deed % 2), other = 1 - side;
    if (deed < 2) {
      const auto length = std::size_t(lengths[sent[side]]);
      for (std::size_t i = 0; i < length; ++i) buffer[i] = pattern(side, sent[side], i);
      results.push_back(channels[side].try_send(std::span<const std::byte>(buffer).first(length)));
      sent[side] += std::size_t(results.back());
    } else {
      const std::optional<std::size_t> got = channels[side].try_receive(std::span(buffer));
      results.push_back(got ? std::int64_t(*got) : -1);
      for (std::size_t i = 0; got && i < std::min(*got, buffer.size()); ++i)
        wrong += buffer[i] != pattern(other, came[side], i);
      came[side] += got.has_value();
    }
  }
  out.put("results", results);
  out.put("wrong", wrong);
}

namespace {
struct Gone {  // not a std::exception
  std::string who;
};
}  // namespace

// Runs all_reduce on rank 1 of 3, whose neighbours accept `takes` and deliver `gives` pieces. The
// third idle() throws std::runtime_error, or, if `foreign`, a type that is no std::exception.
KIT_SCENARIO(silence) {
  std::int64_t tries = 0;
  Silent right{in.integer("takes"), &tries}, left{in.integer("gives"), &tries};
  std::vector<float> work(12);
  int turns = 0;
  const bool foreign = in.integer("foreign", 0) != 0;
  std::string told;
  try {
    lab12::all_reduce<float>(right, left, 1, 3, std::span(work), [&] {
      tries = 0;
      if (++turns == 3 && foreign) throw Gone{"rank 2 is gone"};
      if (turns == 3) throw std::runtime_error("rank 2 is gone");
    });
  } catch (const std::runtime_error& error) {
    told = (foreign ? "another type: " : "") + std::string(error.what());
  } catch (const Gone& gone) {
    told = gone.who;
  }
  out.put("told", told);
}
