// Explores runtime/comm/transport/channel.hpp and doorbell.hpp with three messages and two free
// slots.
//
// A lane has eight slots. Six messages are in flight at the start, so the third posted message
// waits for the first credit. The receiver takes all nine.
#include "runtime/comm/transport/channel.hpp"

#include "tests/memory_order/explored/handoff.hpp"

using namespace explorer;
using namespace ringsmith::comm;

namespace {

constexpr std::uint64_t kInFlight = kSlots - 2, kMessages = kInFlight + 3;

struct Ranks {
  SharedByTwo shared;
  Segments sender{shared, 0}, receiver{shared, 1};
  Outbox out{sender, 1, 0};
  Inbox in{receiver, 0, 0};

  void post(std::uint64_t message) {
    auto* const words = reinterpret_cast<std::uint64_t*>(out.slot());
    words[0] = words[1] = message;
    out.post(16);
  }
  void take(std::uint64_t message) {
    const auto* const words = reinterpret_cast<const std::uint64_t*>(in.slot());
    require(words[0] == message && words[1] == message, "a wrong message");
    in.release();
  }
};

std::shared_ptr<Ranks> two_ranks(std::uint64_t in_flight) {
  instrumented::forget();
  const auto r = std::make_shared<Ranks>();
  for (std::uint64_t m = 1; m <= in_flight; ++m) r->post(m);
  instrumented::watch(r->shared.slots, sizeof r->shared.slots, "slots");
  instrumented::watch(&r->shared, sizeof r->shared, "shared");
  instrumented::name(&r->shared.lanes[0].tail, "tail");
  instrumented::name(&r->shared.lanes[1].head, "head");
  instrumented::name(&r->shared.bells[0].sleeping, "sender's sleeping");
  instrumented::name(&r->shared.bells[0].rings, "sender's rings");
  instrumented::name(&r->shared.bells[1].sleeping, "receiver's sleeping");
  instrumented::name(&r->shared.bells[1].rings, "receiver's rings");
  instrumented::name(&r->shared.wakes[0], "sender's futex");
  instrumented::name(&r->shared.wakes[1], "receiver's futex");
  return r;
}

// Both threads spin, so that waiting has no effect on the other thread.
Program spinning() {
  const auto r = two_ranks(kInFlight);
  return {{{"sender",
            [r] {
              for (std::uint64_t m = kInFlight + 1; m <= kMessages; ++m) {
                wait_until([&] { return r->out.has_room(); });
                r->post(m);
              }
            }},
           {"receiver", [r] {
              for (std::uint64_t m = 1; m <= kMessages; ++m) {
                wait_until([&] { return r->in.has_message(); });
                r->take(m);
              }
            }}}};
}

// Both threads sleep when they must wait, and the other's counter wakes them.
Program sleeping(std::uint64_t in_flight, std::uint64_t posted, std::uint64_t taken) {
  const auto r = two_ranks(in_flight);
  return {{{"sender",
            [r, in_flight, posted] {
              for (std::uint64_t m = in_flight + 1; m <= in_flight + posted; ++m) {
                r->sender.wait(1, [&] { return r->out.has_room(); });
                r->post(m);
              }
            }},
           {"receiver", [r, taken] {
              for (std::uint64_t m = 1; m <= taken; ++m) {
                r->receiver.wait(0, [&] { return r->in.has_message(); });
                r->take(m);
              }
            }}}};
}
// The receiver sleeps for each message; the sender sleeps for the credits of a full lane.
Program receiver_sleeps() { return sleeping(0, 3, 3); }
Program sender_sleeps() { return sleeping(kSlots, 3, 3); }
Program both_sleep() { return sleeping(kInFlight, 3, kMessages); }

// | order             | without it                                                 |
// |-------------------|------------------------------------------------------------|
// | publish of tail   | the message is read before it is written                   |
// | load of tail      | the same                                                   |
// | publish of head   | the slot is written while its last message is still read   |
// | load of head      | the same                                                   |
const Row kChannel[] = {
    {{"tail", Access::update, relaxed}, "data race on slots"},
    {{"tail", Access::load, relaxed}, "data race on slots"},
    {{"head", Access::update, relaxed}, "data race on slots"},
    {{"head", Access::load, relaxed}, "data race on slots"},
};

// Each of these orders is weaker than seq_cst, but strong enough for the channel. With one of them,
// the publisher may miss that the other thread is about to sleep, while the sleeper misses the
// counter.
const Row kReceiversBell[] = {
    {{"tail", Access::update, acq_rel}, "receiver waits forever"},
    {{"tail", Access::load, acquire}, "receiver waits forever"},
    {{"receiver's sleeping", Access::store, release}, "receiver waits forever"},
    {{"receiver's sleeping", Access::load, acquire}, "receiver waits forever"},
};
const Row kSendersBell[] = {
    {{"head", Access::update, acq_rel}, "sender waits forever"},
    {{"head", Access::load, acquire}, "sender waits forever"},
    {{"sender's sleeping", Access::store, release}, "sender waits forever"},
    {{"sender's sleeping", Access::load, acquire}, "sender waits forever"},
};

}  // namespace

TEST_CASE("the channel hands over three messages through two free slots", "[handoff]") {
  expect_right("channel.hpp", spinning);
}
TEST_CASE("each order of the channel is needed", "[handoff]") {
  for (const Row& row : kChannel) expect_wrong("channel.hpp", spinning, row);
}
TEST_CASE("doorbells wake whoever waits for a message or a credit", "[handoff]") {
  expect_right("doorbell.hpp: the receiver sleeps", receiver_sleeps);
  expect_right("doorbell.hpp: the sender sleeps", sender_sleeps);
  expect_right("doorbell.hpp: both sleep, two slots free", both_sleep);
}
TEST_CASE("each order of the doorbells is needed", "[handoff]") {
  for (const Row& row : kReceiversBell) expect_wrong("doorbell.hpp", receiver_sleeps, row);
  for (const Row& row : kSendersBell) expect_wrong("doorbell.hpp", sender_sleeps, row);
}
