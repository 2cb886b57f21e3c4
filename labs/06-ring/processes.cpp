// Part 2 of the driver: mailboxes and the ring between processes.
#include LAB06_RING
#include LAB06_MAILBOX

#include "labs/kit/processes.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "labs/kit/counter.hpp"
#include "labs/kit/driver.hpp"
#include "labs/kit/guarded.hpp"

namespace {

// grow_old() makes a mailbox look as if nearly 2^32 pieces had passed. It passes two rounds of
// equal pieces, and advances every word that grew in the second round by rounds_skipped times its
// growth. This works for any layout of the mailbox, because its counts are the words that grow. A
// round is a multiple of every number of slots up to 6.
constexpr std::uint64_t round_pieces = 240;
constexpr std::uint64_t rounds_skipped = (std::uint64_t{1} << 32) / round_pieces - 2;

std::vector<std::uint64_t> words_of(const lab06::Mailbox& box) {
  std::vector<std::uint64_t> words(sizeof box / sizeof(std::uint64_t));
  std::memcpy(words.data(), &box, words.size() * sizeof(std::uint64_t));
  return words;
}

template <class Pass>
void grow_old(lab06::Mailbox& box, kit::Counter* meeting, int rank, Pass pass) {
  std::vector<std::uint64_t> before;
  for (std::uint64_t turn = 1; turn <= 2; ++turn) {
    for (std::uint64_t i = 0; i < round_pieces; ++i) pass();
    meeting[rank].publish(2 * turn - 1);
    meeting[1 - rank].wait_at_least(2 * turn - 1, "meet", 1 - rank);
    if (rank == 1) {  // the mailbox is not in use now
      std::vector<std::uint64_t> words = words_of(box);
      if (turn == 1) before = words;
      for (std::size_t w = 0; w < words.size(); ++w)
        words[w] += rounds_skipped * (words[w] - before[w]);
      std::memcpy(static_cast<void*>(&box), words.data(), words.size() * sizeof(std::uint64_t));
    }
    meeting[rank].publish(2 * turn);
    meeting[1 - rank].wait_at_least(2 * turn, "meet", 1 - rank);
  }
}

// The number of slots, or 1 if the mailbox has no such constant.
template <class Box>
constexpr std::size_t slots_of() {
  if constexpr (requires { Box::slots; })
    return Box::slots;
  else
    return 1;
}

kit::ProcessOptions options_of(const kit::Request& in) {
  kit::ProcessOptions options;
  options.world = int(in.integer("world"));
  options.bytes = lab06::SharedLink::bytes(options.world);
  options.seed = std::uint64_t(in.integer("seed", 1));
  options.pauses = in.integer("pauses", 0) != 0;
  return options;
}

}  // namespace

// Sends pieces from rank 0 to rank 1 through one mailbox. Piece i holds sizes[i] bytes of value i +
// 1. The receiver reports the first and the last byte of each piece. old: the mailbox looks as if
// nearly 2^32 pieces had passed before. in_step 1: a piece is put when all earlier ones have been
// taken, so a receiver that waits for more than its piece waits forever. in_step 2: a piece is
// taken when all slots are full, so a sender that waits although a slot is free waits forever.
KIT_SCENARIO(pieces) {
  const std::vector<std::int64_t> sizes = in.integers("sizes");
  const bool old = in.integer("old", 0) != 0;
  const std::int64_t in_step = in.integer("in_step", 0);
  kit::ProcessOptions options = options_of(in);
  options.bytes = 2 * sizeof(kit::Counter) + sizeof(lab06::Mailbox);
  kit::Processes processes(options);
  processes.run(
      [&](kit::Member& self, kit::Observation& seen) {
        auto* const meeting = reinterpret_cast<kit::Counter*>(self.memory().data());
        auto& box = *reinterpret_cast<lab06::Mailbox*>(meeting + 2);
        kit::begin_operation("pieces");
        std::byte same[8] = {};
        if (old)
          grow_old(box, meeting, self.rank(), [&] {
            if (self.rank() == 0)
              lab06::put_piece(box, same, 1);
            else
              lab06::take_piece(box, same, 0);
          });
        std::vector<std::int64_t> got;
        for (std::size_t i = 0; i < sizes.size(); ++i) {
          if (in_step == 1 && self.rank() == 0) meeting[1].wait_at_least(i, "meet", 1);
          if (in_step == 2 && self.rank() == 1)
            meeting[0].wait_at_least(std::min(i + slots_of<lab06::Mailbox>(), sizes.size()), "meet",
                                     0);
          const std::byte value{self.rank() == 0 ? static_cast<unsigned char>(i + 1)
                                                 : static_cast<unsigned char>(0)};
          std::vector<std::byte> piece(static_cast<std::size_t>(sizes[i]), value);
          if (self.rank() == 0)
            lab06::put_piece(box, piece, 1);
          else
            lab06::take_piece(box, piece, 0);
          got.push_back(std::int64_t(piece.front()));
          got.push_back(std::int64_t(piece.back()));
          if (in_step != 0) meeting[self.rank()].publish(i + 1);
        }
        seen.put("got", got);
      },
      out);
}

// Runs `calls` all-reduces in succession, without a barrier. Element i of rank r at call k is
// table[r * period + (i + k) % period].
KIT_SCENARIO(processes) {
  const std::vector<float> table = in.floats("table");
  const auto period = std::size_t(in.integer("period"));
  const auto count = std::size_t(in.integer("count")),
             offset = std::size_t(in.integer("offset", 0));
  const auto calls = std::size_t(in.integer("calls", 1));
  const bool in_place = in.integer("in_place", 0) != 0;
  kit::Processes processes(options_of(in));
  processes.run(
      [&](kit::Member& self, kit::Observation& seen) {
        lab06::SharedLink link(self);
        std::vector<float> results;
        std::int64_t guards = 0;
        for (std::size_t call = 0; call < calls; ++call) {
          kit::Guarded<float> input(count, offset), output(count, offset);
          const std::span<float> from = in_place ? output.span() : input.span();
          for (std::size_t i = 0; i < count; ++i)
            from[i] = table[std::size_t(self.rank()) * period + (i + call) % period];
          kit::begin_operation("all_reduce");
          lab06::all_reduce<float>(link, std::span<const float>(from), output.span());
          guards += input.broken() + output.broken();
          results.insert(results.end(), output.span().begin(), output.span().end());
        }
        seen.put("out", results);
        seen.put("guards", guards);
      },
      out);
}

// Three ranks wait for each other: rank 0 sends 5,000 bytes to rank 2, or receives them from rank
// 2; rank 1 receives from rank 0, and rank 2 from rank 1.
KIT_SCENARIO(stuck) {
  kit::Processes processes(options_of(in));
  const bool sends = in.integer("sends") != 0;
  processes.run(
      [&](kit::Member& self, kit::Observation&) {
        lab06::SharedLink link(self);
        kit::begin_operation("stuck");
        std::vector<std::byte> message(5000);
        const int before = (self.rank() + 2) % 3;
        if (self.rank() == 0 && sends)
          link.send(before, std::span<const std::byte>(message));
        else
          link.recv(before, std::span(message));
      },
      out);
}

// Sends messages of sizes[i] elements of one byte from rank 0 to the last rank and back.
KIT_SCENARIO(messages) {
  const std::vector<std::int64_t> sizes = in.integers("sizes");
  kit::Processes processes(options_of(in));
  processes.run(
      [&](kit::Member& self, kit::Observation& seen) {
        lab06::SharedLink link(self);
        const int last = self.world() - 1;
        std::vector<std::byte> got;
        for (std::size_t i = 0; i < sizes.size() && (self.rank() == 0 || self.rank() == last);
             ++i) {
          std::vector<std::byte> sent(static_cast<std::size_t>(sizes[i])), message(sent.size());
          for (std::size_t k = 0; k < sent.size(); ++k)
            sent[k] = static_cast<std::byte>((29 * i + 7 * k) % 251);
          kit::begin_operation("message");
          if (self.rank() == 0) link.send(last, std::span<const std::byte>(sent));
          link.recv(last - self.rank(), std::span<std::byte>(message));
          if (self.rank() != 0) link.send(0, std::span<const std::byte>(message));
          got.insert(got.end(), message.begin(), message.end());
        }
        seen.put("got", got);
      },
      out);
}
