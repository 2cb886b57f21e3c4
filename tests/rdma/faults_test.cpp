// Tests failures of RDMA. Ranks are threads, each with a device of the VM (RINGSMITH_TEST_RDMA,
// "rxe0,rxe1").
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iomanip>
#include <new>
#include <sstream>
#include <thread>

#include "runtime/base/deadline.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/process_group.hpp"
#include "runtime/comm/transport/rdma/rdma_transport.hpp"
#include "runtime/job/threads.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;

namespace {

std::string devices() {
  const char* const names = std::getenv("RINGSMITH_TEST_RDMA");
  return names == nullptr ? "" : names;
}

// A rank's record: "LID GID MTU", then for each rank the queue pair, the first packet's number, the
// keys of the mirror and of its slots, and the address, in hexadecimal.
constexpr std::size_t kWordsBefore = 3, kWordsOfRank = 5, kSlotsKey = 3;
using Tamper = std::function<void(std::vector<std::string>& words)>;

class TamperedBootstrap : public ThreadBootstrap {
 public:
  TamperedBootstrap(std::shared_ptr<ThreadRendezvous> where, int rank, Tamper tamper)
      : ThreadBootstrap(std::move(where), rank), tamper_(std::move(tamper)) {}
  std::vector<std::string> all_gather(const std::string& record) override {
    std::vector<std::string> words;
    std::istringstream in(record);
    for (std::string word; in >> word;) words.push_back(word);
    if (words.size() != kWordsBefore + kWordsOfRank * static_cast<std::size_t>(size()) ||
        words[1].find(':') == std::string::npos)
      return ThreadBootstrap::all_gather(record);
    tampered_ = true;
    tamper_(words);
    std::string changed;
    for (const std::string& word : words) changed += word + " ";
    return ThreadBootstrap::all_gather(changed);
  }
  [[nodiscard]] bool tampered() const { return tampered_; }

 private:
  Tamper tamper_;
  bool tampered_ = false;
};

std::vector<std::string> complaints(const Tamper& tamper) {
  const auto rendezvous = std::make_shared<ThreadRendezvous>(2);
  std::vector<std::string> said(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      std::string& mine = said[static_cast<std::size_t>(rank)];
      try {
        const auto bootstrap = std::make_shared<TamperedBootstrap>(
            rendezvous, rank, rank == 1 ? tamper : [](auto&) {});
        GroupOptions options;
        options.transport = Transport::rdma;
        options.interface = devices();
        options.timeout = std::chrono::seconds(20);
        const auto group = init_process_group(bootstrap, options);
        if (!bootstrap->tampered()) mine = "the record was not recognised";
        std::vector<float> data(100'000, 1.0F);
        for (int call = 0; call < 3; ++call) group->all_reduce(std::span(data));
      } catch (const CommError& e) {
        mine = e.what();
      }
    });
  for (auto& rank : ranks) rank.join();
  return said;
}

std::string other_key(const std::string& hexadecimal) {
  std::ostringstream out;
  out << std::hex << (std::stoul(hexadecimal, nullptr, 16) ^ 0x5a00);
  return out.str();
}

}  // namespace

TEST_CASE("a wrong key is refused by the peer's device, and both ranks say so", "[rdma]") {
  // Plants a wrong key for the slots to which rank 0 writes.
  const auto said = complaints([](auto& words) {
    std::string& key = words[kWordsBefore + kSlotsKey];
    key = other_key(key);
  });
  INFO("rank 0: " << said[0] << "\nrank 1: " << said[1]);
  CHECK_THAT(said[0], ContainsSubstring("rank 1") && ContainsSubstring("remote access error") &&
                          ContainsSubstring("the address or the key"));
  CHECK_THAT(said[1], ContainsSubstring("rank"));
}

TEST_CASE("a GID that leads nowhere is an error that names the rank and its GID", "[rdma]") {
  const auto said = complaints([](auto& words) { words[1] = "::ffff:10.254.253.252"; });
  INFO("rank 0: " << said[0] << "\nrank 1: " << said[1]);
  CHECK_THAT(said[0], ContainsSubstring("rank 1") && ContainsSubstring("GID"));
  CHECK_THAT(said[1], ContainsSubstring("rank 0"));
}

TEST_CASE("a GID index that the device does not have is a usage error that says where to look",
          "[rdma]") {
  setenv("RINGSMITH_GID_INDEX", "77", 1);
  std::string said;
  try {
    (void)rdma::open_adapter(devices(), 0);
  } catch (const UsageError& e) {
    said = e.what();
  }
  unsetenv("RINGSMITH_GID_INDEX");
  CHECK_THAT(said, ContainsSubstring("RINGSMITH_GID_INDEX") && ContainsSubstring("ibv_devinfo"));
}

TEST_CASE("a device that is not there is a usage error that names those that are", "[rdma]") {
  std::string said;
  try {
    (void)rdma::open_adapter("mlx5_9", 0);
  } catch (const UsageError& e) {
    said = e.what();
  }
  CHECK_THAT(said, ContainsSubstring("mlx5_9") && ContainsSubstring("rxe0"));
}

namespace {

// One end of the wires between two ranks: memory, mirror and wires.
struct End {
  End(const std::shared_ptr<ThreadRendezvous>& rendezvous, int rank)
      : bootstrap(rendezvous, rank), segment(kPages * 512), mirror(kPages * 512) {
    std::vector<bool> remote(2, true);
    remote[static_cast<std::size_t>(rank)] = false;
    std::vector<std::byte*> mirrors(2, nullptr);
    mirrors[static_cast<std::size_t>(1 - rank)] = at(mirror, 0);
    constexpr std::chrono::seconds kTimeout{20};
    wires = std::make_unique<rdma::RdmaTransport>(bootstrap, rdma::open_adapter(devices(), rank),
                                                  tcp::connect_all(bootstrap, remote, {}, true),
                                                  at(segment, 0), mirrors, Layout(2), Doorbells({}),
                                                  kTimeout);
  }
  using Memory = std::vector<std::uint64_t>;
  static std::byte* at(Memory& memory, std::size_t offset) {
    return reinterpret_cast<std::byte*>(memory.data()) + offset;
  }
  static std::uint64_t counter(Memory& memory, std::size_t offset) {
    return std::launder(reinterpret_cast<std::atomic<std::uint64_t>*>(at(memory, offset)))->load();
  }
  static inline const std::size_t kPages = Layout(2).arena() / 4096;

  ThreadBootstrap bootstrap;
  Memory segment, mirror;
  std::unique_ptr<rdma::RdmaTransport> wires;
};

}  // namespace

TEST_CASE("queues kept at their limits: whoever does not look is waited for, and nothing is lost",
          "[rdma]") {
  constexpr int kMessages = 4000;  // enough to fill 31 send queues, or 62 receive queues
  const auto rendezvous = std::make_shared<ThreadRendezvous>(2);
  const std::size_t counter = Layout(2).lane(0, 0), word = counter + 64;
  bool was_full = false, in_order = true;
  std::uint64_t last = 0;
  std::string trouble;
  std::thread receiver([&] {
    End end(rendezvous, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // its queue fills up
    const Deadline deadline = Deadline::in(std::chrono::seconds(60));
    while (last < kMessages && end.wires->broken(0).empty() && !deadline.passed()) {
      end.wires->progress();
      const std::uint64_t now = End::counter(end.mirror, counter);
      in_order = in_order && now >= last && End::counter(end.mirror, word) >= now;
      last = now;
    }
    trouble += end.wires->broken(0);
    (void)end.bootstrap.all_gather("seen");
  });
  {
    End end(rendezvous, 0);
    for (std::uint64_t i = 1; i <= kMessages; ++i) {
      end.wires->write(1, word, reinterpret_cast<const std::byte*>(&i), sizeof i);
      end.wires->publish(1, counter, i);
    }
    int whom = -1;
    was_full = !end.wires->flushed(whom);
    const Deadline deadline = Deadline::in(std::chrono::seconds(60));
    while (!end.wires->flushed(whom) && end.wires->broken(1).empty() && !deadline.passed())
      end.wires->progress();
    trouble += end.wires->broken(1);
    (void)end.bootstrap.all_gather("seen");
  }
  receiver.join();
  CHECK(was_full);
  CHECK(in_order);
  CHECK(last == kMessages);
  CHECK(trouble.empty());
}
