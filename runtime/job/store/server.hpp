// The store's server: one thread that owns the table and all connections.
//
// Any host may connect to its port. Strangers, i.e. connections without proof, get little time and
// memory. When there are too many, the server drops the oldest one from the address that has the
// most. So clients that know the secret can connect from any other address, and also from that
// address if they send the proof before too many others have connected. Connections through the
// door (door.hpp) are never dropped in favour of others.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <thread>
#include <vector>

#include "runtime/comm/transport/tcp/address.hpp"
#include "runtime/job/store/door.hpp"
#include "runtime/job/store/session.hpp"

namespace ringsmith::comm {

struct StoreServerOptions {
  std::string bind = "127.0.0.1";  // an interface, or one of its addresses or names
  std::string chosen_by = {};      // the option that sets `bind`, for messages
  std::uint16_t port = 0;          // 0: any free port
  std::chrono::milliseconds handshake{5000};
  std::size_t max_pending_strangers = 512;
  store::TableLimits table{};
  std::optional<store::CoordinatorOptions> quorums{};  // present: the store has a coordinator
  // Called on the server's thread with each rank that was silent for too long.
  std::function<void(int rank)> on_silent{};
};

class StoreServer {
 public:
  // Throws UsageError if the port is taken or the address is not a local one, and ResourceError if
  // a limit is reached. door: the inner end of the door, if there is one.
  StoreServer(Secret secret, StoreServerOptions options, Descriptor door = {});
  ~StoreServer();

  [[nodiscard]] std::uint16_t port() const { return listener_.port; }
  // Waits until at least `joined` members have connected since the start and at most `members` are
  // still connected; false if the timeout passes first.
  bool drain(std::size_t members, std::chrono::milliseconds timeout, std::size_t joined = 0) const;

  // For tests and reports.
  struct Counters {
    std::atomic<std::uint64_t> accepted{0};   // connections
    std::atomic<std::uint64_t> refused{0};    // of these: no valid proof in time, or no room
    std::atomic<std::uint64_t> joined{0};     // members, since the start
    std::atomic<std::uint64_t> members{0};    // connected now
    std::atomic<std::uint64_t> strangers{0};  // connected now over TCP, without proof
    std::atomic<std::int64_t> quorum{0};      // number of the last quorum
    std::atomic<std::uint64_t> joiners{0};    // ranks that wait for the next quorum
    std::atomic<bool> over{false};            // all steps of the training have counted
    std::atomic<bool> failed{false};          // no further step can count
  };
  [[nodiscard]] const Counters& counters() const { return counters_; }
  // Number of steps that have counted with this rank as a member. Requires a coordinator.
  [[nodiscard]] std::int64_t counted(int rank) const {
    return counted_[static_cast<std::size_t>(rank)].load();
  }

 private:
  // An IPv4 address, or the /64 network of an IPv6 address: one host may own all of it.
  using Origin = std::array<unsigned char, 8>;
  enum class Standing { by_door, stranger, member };
  struct ClientConnection {
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
  void no_stranger_any_more(const ClientConnection& connection);
  void exchange(ClientConnection& connection, short events);
  [[nodiscard]] bool advance_all();
  void sweep();
  void look_at_quorum();
  [[nodiscard]] int milliseconds_to_sleep() const;

  Secret secret_;
  StoreServerOptions options_;
  tcp::Listener listener_;
  Descriptor door_;
  Descriptor stop_;  // eventfd: readable when the server must stop
  store::KeyTable table_;
  std::optional<store::Coordinator> coordinator_;
  std::list<ClientConnection> connections_;  // in order of arrival
  std::map<Origin, std::size_t> strangers_from_;
  Counters counters_;
  std::vector<std::atomic<std::int64_t>> counted_;  // by rank
  Deadline::Clock::time_point accept_again_{};      // end of the pause after descriptors ran out
  std::thread thread_;
};

}  // namespace ringsmith::comm
