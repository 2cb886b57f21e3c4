// Runs two of the student's endpoints on the kit's device.
#include LAB11_ENDPOINT

#include "labs/kit/driver.hpp"

#include <algorithm>
#include <exception>
#include <functional>
#include <optional>
#include <stdexcept>
#include <vector>

#include "labs/kit/verbs/device.hpp"

namespace {

using lab11::Address;
using lab11::Endpoint;

std::byte pattern(int rank, std::size_t message, std::size_t i) {
  return std::byte(1 + (std::size_t(rank) * 101 + message * 31 + i * 7) % 255);
}

// Two ranks, their memory, and the separate channel by which they exchange their addresses.
struct Pair {
  explicit Pair(const kit::Request& in)
      : puts(std::size_t(in.integer("puts", 1))),
        bytes(std::size_t(in.integer("bytes", 64))),
        limits{int(in.integer("sends", 16)), int(in.integer("receives", 16)),
               int(in.integer("gid_index", 1))},
        seed(std::uint64_t(in.integer("seed"))) {
    for (int rank = 0; rank < 2; ++rank) {
      inbox[rank].assign(puts * bytes + 64 + 8 * std::size_t(rank), std::byte{0});
      outbox[rank].assign(puts * bytes + 64, std::byte{0xEE});
      for (std::size_t m = 0; m < puts; ++m)
        for (std::size_t i = 0; i < bytes; ++i) outbox[rank][m * bytes + i] = pattern(rank, m, i);
    }
  }
  // The part of the memory that an endpoint gets. Rank 1 has a longer inbox.
  std::span<std::byte> part(std::vector<std::byte>& all, int extra = 0) const {
    return std::span(all).first(puts * bytes + std::size_t(extra));
  }
  // Messages have different lengths, and are stored in the inbox in reverse order.
  [[nodiscard]] std::size_t size_of(std::size_t m) const { return bytes - std::min(m % 3, bytes); }
  [[nodiscard]] std::size_t from(std::size_t m) const { return m * bytes; }
  [[nodiscard]] std::size_t to(std::size_t m) const { return (puts - 1 - m) * bytes; }
  // Waits for the other rank, which may have left.
  void meet(int rank, const std::function<bool()>& there) const {
    while (!there() && !gone[1 - rank]) kit::verbs::stand_still(1);
  }
  void run(const std::function<void(int, Endpoint&)>& body,
           const std::function<void(int, Address&)>& tamper = {}) {
    kit::verbs::run(2, seed, [&](int rank) {
      struct Leave {
        bool& flag;
        ~Leave() { flag = true; }
      } leave{gone[rank]};
      try {
        Endpoint end("sim0", part(inbox[rank], 8 * rank), part(outbox[rank]), limits);
        addresses[rank] = end.address();
        meet(rank, [&] { return addresses[1 - rank].has_value(); });
        if (!addresses[1 - rank]) return;
        Address theirs = *addresses[1 - rank];
        if (tamper) tamper(rank, theirs);
        end.connect(theirs);
        connected[rank] = true;
        meet(rank, [&] { return connected[1 - rank]; });
        body(rank, end);
        finished[rank] = true;
        if (stays_to_the_end) meet(rank, [&] { return finished[1 - rank]; });
      } catch (const std::exception& error) {
        const std::string why = kit::verbs::last_trouble();
        throw std::runtime_error("rank " + std::to_string(rank) + " threw: " + error.what() +
                                 (why.empty() ? "" : " (the device: " + why + ")"));
      }
    });
  }

  std::size_t puts, bytes;
  lab11::Limits limits;
  std::uint64_t seed;
  std::vector<std::byte> inbox[2], outbox[2];
  std::optional<Address> addresses[2];
  bool connected[2] = {}, finished[2] = {}, gone[2] = {}, stays_to_the_end = true;
};

// Receives all messages of rank 1 - rank and checks each one when its value arrives.
void take_all(Pair& pair, int rank, Endpoint& end, std::vector<std::int64_t>& values,
              std::int64_t& wrong) {
  while (values.size() < pair.puts) {
    const std::optional<std::uint32_t> value = end.poll();
    if (!value) continue;
    const std::size_t message = values.size();
    values.push_back(*value);
    for (std::size_t i = 0; i < pair.size_of(message); ++i)
      wrong += pair.inbox[rank][pair.to(message) + i] != pattern(1 - rank, message, i);
  }
}

}  // namespace

// Rank 0 puts to rank 1, or both put to each other. Rank 1 is busy for the first `pause` turns.
KIT_SCENARIO(talk) {
  Pair pair(in);
  const bool both = in.integer("both", 0) != 0;
  const auto base = std::uint32_t(in.integer("base", 0x01020304));
  std::vector<std::int64_t> values[2];
  std::int64_t wrong[2] = {}, missing_after_flush = 0, beyond = 0, early = 0;
  pair.run([&](int rank, Endpoint& end) {
    if (rank == 0 && !both && end.poll().has_value()) ++early;  // no rank puts to rank 0
    if (rank == 1 && in.integer("pause", 0) > 0) kit::verbs::stand_still(int(in.integer("pause")));
    if (rank == 0 || both) {
      for (std::size_t m = 0; m < pair.puts; ++m)
        end.put(pair.from(m), pair.to(m), pair.size_of(m), base + std::uint32_t(m));
      end.flush();
      for (std::size_t m = 0; m < pair.puts; ++m)
        for (std::size_t i = 0; i < pair.bytes; ++i)
          missing_after_flush +=
              pair.inbox[1 - rank][pair.to(m) + i] !=
              (i < pair.size_of(m) ? pair.outbox[rank][pair.from(m) + i] : std::byte{0});
      end.flush();
    }
    if (rank == 1 || both) take_all(pair, rank, end, values[rank], wrong[rank]);
  });
  for (const int rank : {0, 1})
    for (std::size_t i = pair.puts * pair.bytes; i < pair.inbox[rank].size(); ++i)
      beyond += pair.inbox[rank][i] != std::byte{0};
  for (const int rank : {0, 1}) {
    out.put("values." + std::to_string(rank), values[rank]);
    out.put("wrong." + std::to_string(rank), wrong[rank]);
  }
  out.put("missing_after_flush", missing_after_flush);
  out.put("beyond", beyond + (both ? 0 : early));
  kit::verbs::observe(out);
}

// Runs with a fault: a wrong key, address, route or packet number, a put outside the memory, or a
// peer that has left. Rank 0 tries to put up to three times, and reports the errors; with once = 1
// it stops at the first. Rank 1 polls, and should get an error, too, if the device flushes its
// requests.
KIT_SCENARIO(faulty) {
  Pair pair(in);
  const std::string fault = in.text("fault");
  const bool once = in.integer("once", 0) != 0;
  std::string first, second, third, fourth, polled;
  pair.stays_to_the_end = fault != "gone";
  pair.run(
      [&](int rank, Endpoint& end) {
        if (rank == 1) {
          if (fault == "gone") return;
          for (int turn = 0; turn < 600 && polled.empty(); ++turn) try {
              (void)end.poll();
            } catch (const std::runtime_error& told) {
              polled = told.what();
            }
          return;
        }
        if (fault == "gone") kit::verbs::stand_still(50);
        for (std::string* error : {&first, &second}) try {
            if (fault == "outside" && error == &first)
              end.put(std::size_t(in.integer("from")), std::size_t(in.integer("to")),
                      std::size_t(in.integer("length")), 7);
            for (std::size_t m = 0; m < pair.puts && fault != "outside"; ++m)
              end.put(pair.from(m), pair.to(m), pair.size_of(m), std::uint32_t(m));
            end.flush();
          } catch (const std::runtime_error& told) {
            *error = told.what();
            if (once) return;
          }
        if (fault != "outside") try {  // put alone reports earlier failures, too
            end.put(0, 0, 1, 7);
          } catch (const std::runtime_error& told) {
            third = told.what();
          }
        if (fault != "outside") try {  // and so does flush alone
            end.flush();
          } catch (const std::runtime_error& told) {
            fourth = told.what();
          }
      },
      [&](int rank, Address& theirs) {
        if (rank != 0) return;
        if (fault == "key") theirs.inbox_key ^= 0x10;
        if (fault == "address") theirs.inbox += 1 << 20;
        if (fault == "route") theirs.gid.raw[15] ^= 0x40;
        if (fault == "packet") theirs.first_packet ^= 1, theirs.queue_pair += 1000;
      });
  std::int64_t written = 0;
  for (const std::byte b : pair.inbox[1]) written += b != std::byte{0};
  out.put("written", written);
  out.put("first", first);
  out.put("second", second);
  out.put("third", third);
  out.put("fourth", fourth);
  out.put("polled", polled);
  kit::verbs::observe(out);
}

// The device has no memory for an object, the GID does not exist, or connect() is called twice.
KIT_SCENARIO(refused) {
  const std::string what = in.text("what");
  std::string error = "nothing";
  kit::verbs::run(1, std::uint64_t(in.integer("seed")), [&](int) {
    std::vector<std::byte> inbox(4096), outbox(512);
    if (what == "object") kit::verbs::withhold(in.text("kind"), int(in.integer("after")));
    try {
      Endpoint end("sim0", inbox, outbox, {8, 8, what == "gid" ? 5 : 1});
      const Address mine = end.address();
      end.connect(mine);
      if (what == "twice") end.connect(mine);
      (void)end.poll();
    } catch (const std::runtime_error& told) {
      error = told.what();
    }
  });
  out.put("error", error);
  kit::verbs::observe(out);
}

// Creates and destroys endpoints, and opens one for a device that does not exist.
KIT_SCENARIO(objects) {
  std::string error;
  kit::verbs::run(1, std::uint64_t(in.integer("seed")), [&](int) {
    std::vector<std::byte> inbox(4096), outbox(512);
    for (int i = 0; i < int(in.integer("times")); ++i) {
      Endpoint end(in.text("device", "sim0"), inbox, outbox, {8, 8, 1});
      const Address mine = end.address();
      out.put("inbox_bytes", std::int64_t(mine.inbox_bytes));
      out.put("inbox_right", mine.inbox == reinterpret_cast<std::uint64_t>(inbox.data()));
      out.put("first_packet", std::int64_t(mine.first_packet));
      out.put("gid", std::int64_t(mine.gid.raw[15]));
    }
    try {
      Endpoint end(in.text("missing", "nosuch7"), inbox, outbox);
    } catch (const std::runtime_error& told) {
      error = told.what();
    }
  });
  out.put("error", error);
  kit::verbs::observe(out);
}
