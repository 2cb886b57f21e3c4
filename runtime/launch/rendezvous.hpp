// Which nodes take part in a round of the job, where a round is one start of all its ranks.
//
//     round 0: node 0 = a, node 1 = b      b is lost: the ranks on a are ended
//     round 1: node 0 = a                  c comes: the same
//     round 2: node 0 = a, node 1 = c
//
// One ringrun holds the rendezvous: node 0, or with c10d the one that runs where the end point is.
// It takes part in every round, as its node 0, and decides alone who else does. There is no vote
// and no lock, and if it is lost, so is the job. The others are its clients; A numbers them as they
// come, K counts what A has asked for:
//
//     meeting/ringruns    a counter: the last A
//     meeting/ready/A/K   A has no ranks (any more), and asks for a place: who it is
//     meeting/place/A/K   the answer: a place in the next round, or why there is none
//     meeting/gone/A      its will
//
// Each round has a store of its own, on a port and with a secret of its own, which also closes with
// it: what is left of an earlier round cannot speak to this one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/bootstrap/store/client.hpp"
#include "runtime/comm/bootstrap/store/server.hpp"
#include "runtime/launch/launch.hpp"

namespace ringsmith::launch {

struct Round {
  int number = 0;    // from 0
  int restarts = 0;  // rounds of these that followed a failure
  int node = 0, nodes = 1;
  std::uint16_t port = 0;  // of the round's store; 0: node 0 takes a free one
  std::string word = {};   // new in each: the round's secret is made with it; "": the only round
};

class Rendezvous {
 public:
  // How a round ended. failed: it counts as a restart; joined: a node has come, and it does not.
  enum class End { none, well, failed, joined, stopped };

  // Holds the rendezvous, or reaches the one who does. UsageError, TimeoutError.
  // A job on one node, or of one round between given nodes, needs none: then nobody is asked.
  Rendezvous(const LaunchOptions& options, const comm::Secret& secret);
  ~Rendezvous();

  [[nodiscard]] bool meets() const { return store_ != nullptr; }
  // The next round, once it is decided; nothing if there is none, which close() or a line on
  // standard error explains. TimeoutError if too few nodes come; CommError if the holder is lost.
  [[nodiscard]] std::optional<Round> next(End last);
  [[nodiscard]] comm::Secret secret_of(const Round& round) const;
  // The holder: the store of this round listens at that port.
  void open(const Round& round, std::uint16_t port);
  // The holder: is there room for more nodes than in this round? Then, a line on one that has come
  // since; "": none has.
  [[nodiscard]] bool has_room() const { return store_ && holds_ && round_.nodes < options_.nodes; }
  [[nodiscard]] std::string newcomer();
  // The holder: there will be no further round.
  void close(int exit_code, const std::string& why);
  // For a node that was in no round: how the job ended without it.
  [[nodiscard]] int exit_code() const { return exit_code_; }

 private:
  struct Ringrun {
    int node = -1;      // that it was given; -1: none
    std::string place;  // for messages
    int asked = 0;      // answers that it has
    bool waits = false, member = false, gone = false;
  };
  void look();
  void judge(Ringrun& ringrun, const std::string& who);
  void answer(Ringrun& ringrun, const std::string& text);
  void gather();
  [[nodiscard]] std::string who_is_missing(int here) const;
  [[nodiscard]] std::optional<Round> ask();

  const LaunchOptions& options_;
  comm::Secret secret_;
  bool holds_ = true;
  std::unique_ptr<comm::StoreServer> server_;  // the holder's
  std::unique_ptr<comm::StoreClient> store_;
  std::string where_;                // the end point, for messages
  std::vector<Ringrun> others_;      // the holder's; A is the index + 1
  std::vector<std::size_t> chosen_;  // of them, for the round to come: nodes 1, 2, ...
  Round round_;                      // the last one
  int number_ = 0;                   // A
  int asked_ = 0;                    // K
  int exit_code_ = 0;
  bool closed_ = false;
};

}  // namespace ringsmith::launch
