// A rank that dies while the ranks are being connected, after each of the exchanges through which
// they meet: every survivor names it, and not one of those that gave up because of it.
#include <csignal>

#include "tests/fault/forked_ranks.hpp"
#include "tests/fault/started_by_hand.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/free_port.hpp"
#include "tests/support/transport.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;

namespace {

// Ends its process by SIGKILL once it has taken part in so many exchanges.
class DiesAfter : public Bootstrap {
 public:
  DiesAfter(std::shared_ptr<Bootstrap> inner, int exchanges)
      : inner_(std::move(inner)), left_(exchanges) {}
  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& record) override {
    auto records = inner_->all_gather(record);
    if (--left_ == 0) (void)raise(SIGKILL);
    return records;
  }

 private:
  std::shared_ptr<Bootstrap> inner_;
  int left_;
};

constexpr int kWorld = 4;

std::vector<Ending> start(int victim, int exchanges) {
  const std::string port = testing::free_port();
  ForkedRanks ranks(kWorld, [&](std::shared_ptr<Bootstrap> place, ForkedRanks&) {
    look_started_by_hand(place->rank(), kWorld, port);
    GroupOptions options;
    options.transport = test_transport();
    const bool dies = place->rank() == victim;
    place = make_bootstrap(BootstrapKind::env, options.timeout);
    if (dies) place = std::make_shared<DiesAfter>(std::move(place), exchanges);
    const auto group = init_process_group(std::move(place), options);
    if (dies) (void)raise(SIGKILL);  // it needed fewer exchanges
    std::vector<float> values(1000);
    while (true) group->all_reduce(std::span(values));
  });
  return ranks.wait_for_all(std::chrono::seconds(10));
}

}  // namespace

TEST_CASE("a rank killed while the ranks connect is named by every survivor", "[fault][meeting]") {
  for (int exchanges = 1; exchanges <= 4; ++exchanges)
    for (int victim = 0; victim < kWorld; ++victim) {
      const auto endings = start(victim, exchanges);
      for (int r = 0; r < kWorld; ++r) {
        if (r == victim) continue;
        const Ending& ending = endings[static_cast<std::size_t>(r)];
        INFO("rank " << victim << " killed after exchange " << exchanges << ": rank " << r
                     << " says " << ending.errors);
        CHECK(ending.exited);
        CHECK(ending.seconds < 8);  // since the start; nobody waits for the deadline of 30 s
        CHECK_THAT(ending.errors, ContainsSubstring("rank " + std::to_string(victim) + " "));
      }
    }
}
