// Explores kit::Counter with lab 06's mailbox: two slots, a counter at each end.
#define SOLUTION
#include "labs/06-ring/mailbox.hpp"
#include "tests/memory_order/explored/handoff.hpp"

using namespace explorer;

namespace {

constexpr int kMessages = 3;

Program mailbox() {
  instrumented::forget();
  const auto box = std::make_shared<lab06::Mailbox>();
  std::memset(box->slot, 0, sizeof box->slot);
  instrumented::watch(box->slot, sizeof box->slot, "slots");
  instrumented::watch(box.get(), sizeof *box, "mailbox");
  instrumented::name(&box->tail, "tail");
  instrumented::name(&box->head, "head");
  const auto send = [box] {
    for (int i = 1; i <= kMessages; ++i) {
      const std::byte piece[2] = {std::byte(i), std::byte(i)};
      lab06::put_piece(*box, piece, 1);
    }
  };
  const auto receive = [box] {
    for (int i = 1; i <= kMessages; ++i) {
      std::byte piece[2] = {};
      lab06::take_piece(*box, piece, 0);
      require(piece[0] == std::byte(i) && piece[1] == std::byte(i), "a wrong message");
    }
  };
  return {{{"sender", send}, {"receiver", receive}}};
}

// | order              | without it                                             |
// |--------------------|--------------------------------------------------------|
// | publish of tail    | the piece is read before it is written                 |
// | read of tail       | the same                                               |
// | publish of head    | the slot is written while its last piece is still read |
// | read of head       | the same                                               |
const Row kRows[] = {
    {{"tail", Access::store, relaxed}, "data race on slots"},
    {{"tail", Access::load, relaxed}, "data race on slots"},
    {{"head", Access::store, relaxed}, "data race on slots"},
    {{"head", Access::load, relaxed}, "data race on slots"},
};

}  // namespace

TEST_CASE("kit::Counter hands over three pieces through two slots", "[handoff]") {
  expect_right("counter.hpp: lab 06's mailbox", mailbox);
}
TEST_CASE("each order of kit::Counter is needed", "[handoff]") {
  for (const Row& row : kRows) expect_wrong("counter.hpp", mailbox, row);
}
