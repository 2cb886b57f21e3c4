// Decides which nodes take part in a round of the job. A round is one start of all its ranks.
//
//     round 0: node 0 = a, node 1 = b      b is lost: the ranks on a are ended
//     round 1: node 0 = a                  c arrives: the ranks on a are ended
//     round 2: node 0 = a, node 1 = c
//
// One ringrun holds the rendezvous: node 0, or with c10d the ringrun on the endpoint's host. This
// ringrun takes part in every round as node 0, and it alone decides which other nodes do. If it is
// lost, so is the job. The other ringruns are its clients. Client A, numbered in order of arrival
// from 1, makes requests K = 0, 1, ...:
//
//     meeting/ringruns    a counter: the last A
//     meeting/ready/A/K   A has no running ranks and asks for a place: its options and process
//     meeting/place/A/K   the answer: a place in the next round, or why there is none
//     meeting/gone/A      A's will: set when A's connection is lost
//
// Each round has its own store, with its own port and secret, so processes left over from an
// earlier round cannot connect to it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/job/launch/launch.hpp"
#include "runtime/job/store/client.hpp"
#include "runtime/job/store/server.hpp"

namespace ringsmith::launch {

struct Round {
  int number = 0;    // from 0
  int restarts = 0;  // rounds before this one that ended in a failure
  int node = 0, nodes = 1;
  std::uint16_t port = 0;  // of the round's store; 0: node 0 takes a free one
  std::string word = {};   // random; the round's secret is derived from it; "": only one round
};

class Rendezvous {
 public:
  // How a round ended. `failed` counts as a restart; `joined` (another node has arrived) does not.
  enum class Outcome { none, well, failed, joined, stopped };

  // Holds the rendezvous, or connects to its holder. A job with one node, or with numbered nodes
  // and a single round, needs no rendezvous, and the constructor does nothing. Throws UsageError,
  // TimeoutError, or MismatchError if the holder is another program or has another secret.
  Rendezvous(const LaunchOptions& options, const comm::Secret& secret);
  ~Rendezvous();

  [[nodiscard]] bool meets() const { return store_ != nullptr; }
  // Blocks until the next round is decided, and returns it; empty if there is none. Throws
  // TimeoutError if too few nodes arrive or the job has no place for this one, MismatchError if the
  // holder rejects it, and CommError if the holder is lost.
  [[nodiscard]] std::optional<Round> next(Outcome last);
  [[nodiscard]] comm::Secret secret_of(const Round& round) const;
  // For the holder: publishes the port of the round's store to the round's members.
  void open(const Round& round, std::uint16_t port);
  // For the holder: true if more nodes may take part. In that case, newcomer() returns a line about
  // a node that has arrived; "" if none has.
  [[nodiscard]] bool has_room() const { return store_ && holds_ && round_.nodes < options_.nodes; }
  [[nodiscard]] std::string newcomer();
  // For the holder: announces to the others that there will be no further round.
  void close(int exit_code, const std::string& why);
  // Returns the job's exit code, for a node that was never part of a round.
  [[nodiscard]] int exit_code() const { return exit_code_; }

 private:
  struct Ringrun {
    int node = -1;      // its number in the job; -1: none given
    std::string place;  // for messages
    int asked = 0;      // requests answered so far: K
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
  std::string where_;                // the endpoint, for messages
  std::vector<Ringrun> others_;      // the holder's; A is the index + 1
  std::vector<std::size_t> chosen_;  // indices in others_ of nodes 1, 2, ... of the next round
  Round round_;                      // the last one
  int number_ = 0;                   // A
  int asked_ = 0;                    // K
  int exit_code_ = 0;
  bool closed_ = false;
};

}  // namespace ringsmith::launch
