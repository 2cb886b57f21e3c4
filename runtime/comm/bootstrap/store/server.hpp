// The store's server: one thread that owns the table and all connections.
//
// It is meant to stand on a port that anybody may knock at. Strangers have little time for their
// proof and little memory; when too many of them knock at once one has to go: of the address that
// most of them come from, the one that has waited longest. So those who know the secret get through
// from any other address, and from the same one if they prove it before as many others have come.
// Who comes by the door (door.hpp) is never sent away. The interface is chosen (never all of them
// by accident), and port 0 takes a free port, so that two jobs never race for one.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <thread>
#include <vector>

#include "runtime/comm/bootstrap/store/door.hpp"
#include "runtime/comm/bootstrap/store/session.hpp"
#include "runtime/comm/transport/tcp/address.hpp"

namespace ringsmith::comm {

struct StoreServerOptions {
  std::string bind = "127.0.0.1";  // an interface, or an address or name of one
  std::string chosen_by = {};      // what a user sets it with, for messages
  std::uint16_t port = 0;          // 0: a free one
  std::chrono::milliseconds handshake{5000};
  std::size_t most_strangers = 512;
  store::TableLimits table{};
  std::optional<store::CoordinatorOptions> quorums{};  // if there is to be a coordinator
  // Called with each rank that was silent for too long, on the server's thread.
  std::function<void(int rank)> on_silent{};
};

class StoreServer {
 public:
  // UsageError if the port is taken or the address is not ours.
  // door: its inside, if there is one.
  StoreServer(Secret secret, StoreServerOptions options, Descriptor door = {});
  ~StoreServer();

  [[nodiscard]] std::uint16_t port() const { return listener_.port; }
  // Waits until at least `joined` members have come, now or before, and at most `members` are still
  // connected; false when the time is over.
  bool drain(std::size_t members, std::chrono::milliseconds timeout, std::size_t joined = 0) const;

  // For tests and reports.
  struct Counters {
    std::atomic<std::uint64_t> accepted{0};   // connections
    std::atomic<std::uint64_t> refused{0};    // of them: wrong proof, no proof in time, or no room
    std::atomic<std::uint64_t> joined{0};     // members, since the start
    std::atomic<std::uint64_t> members{0};    // connected now
    std::atomic<std::uint64_t> strangers{0};  // the same, without those who came by the door
    std::atomic<std::int64_t> quorum{0};      // the last one
    std::atomic<std::uint64_t> joiners{0};    // ranks that wait for the next
    std::atomic<bool> over{false};            // all steps of the training have counted
    std::atomic<bool> failed{false};          // or none can any more
  };
  [[nodiscard]] const Counters& counters() const { return counters_; }
  // With a coordinator: steps that have counted with this rank.
  [[nodiscard]] std::int64_t counted(int rank) const {
    return counted_[static_cast<std::size_t>(rank)].load();
  }

 private:
  // An IPv4 address, or the network of an IPv6 one: a host may have 2^64 addresses of that.
  using Origin = std::array<unsigned char, 8>;
  enum class Standing { by_door, stranger, member };
  struct Connection {
    Descriptor socket;
    store::Session session;
    Standing standing = Standing::stranger;
    Origin origin{};
  };
  void serve();
  void accept_all();
  void let_in_by_door(short events);
  void admit(Descriptor socket, Standing standing, Origin origin);
  [[nodiscard]] bool drop_a_stranger();
  void no_stranger_any_more(const Connection& connection);
  void exchange(Connection& connection, short events);
  [[nodiscard]] bool advance_all();
  void sweep();
  void look_at_quorum();
  [[nodiscard]] int milliseconds_to_sleep() const;

  Secret secret_;
  StoreServerOptions options_;
  tcp::Listener listener_;
  Descriptor door_;
  Descriptor stop_;  // eventfd: readable when the server is to end
  store::Table table_;
  std::optional<store::Coordinator> coordinator_;
  std::list<Connection> connections_;  // in the order of their arrival
  std::map<Origin, std::size_t> strangers_from_;
  Counters counters_;
  std::vector<std::atomic<std::int64_t>> counted_;  // by rank
  Deadline::Clock::time_point accept_again_{};      // not before: there were no descriptors left
  std::thread thread_;
};

}  // namespace ringsmith::comm
