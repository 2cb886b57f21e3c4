// How the launchers of a job communicate: there is one per node, and all are clients of the store
// in node 0's launcher.
//
//     job/verdict     "ok", or why the job ends; the first write decides. The store writes it for
//                     a launcher that dies (its will), so that the others notice
//     job/done        a counter: nodes on which all ranks have succeeded (job/done/N: node N has)
//     job/heard/N     node N knows the verdict: it ends its ranks and will report its failures
//     job/failure/N   the failure on node N ("" for none), once its ranks have ended, or, if its
//                     launcher dies after the verdict, the launcher's will
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "runtime/job/exchange.hpp"
#include "runtime/job/launch/failure.hpp"
#include "runtime/job/launch/launch.hpp"
#include "runtime/job/launch/process.hpp"
#include "runtime/job/store/client.hpp"
#include "runtime/job/store/server.hpp"

namespace ringsmith::launch {

struct Verdict {
  // over: a rank failed, or the reason in `text`; stopped: by a signal; lost: a launcher died;
  // joined: a new node arrived.
  enum class Kind : char { ok = 'o', over = 'e', stopped = 's', lost = 'l', joined = 'j' };
  Kind kind = Kind::ok;
  int node = -1;     // the node that decided, or whose launcher is lost
  std::string text;  // the reason
};

// The address on which node 0 listens: --bind if given, otherwise --master-addr. With several
// nodes, a --master-addr that only resolves to the loopback here (Debian's /etc/hosts), and is not
// itself localhost or a loopback address, is replaced by all interfaces.
[[nodiscard]] std::string listens_on(const LaunchOptions& options);

// Throws UsageError if there is no secret.
[[nodiscard]] comm::Secret job_secret(const LaunchOptions& options);

class Nodes {
 public:
  // Starts the store (on node 0, which passes the port to `announce`) and blocks until all nodes
  // have arrived. Throws UsageError, TimeoutError, PeerLost or MismatchError, which name the node
  // at fault, and CommError once the descriptor `hurry` is readable.
  Nodes(const LaunchOptions& options, comm::Secret secret,
        const std::function<void(std::uint16_t)>& announce = {}, int hurry = -1);
  ~Nodes();

  [[nodiscard]] RankPlace place_of(int local_rank) const;
  [[nodiscard]] const StorePlace& store() const { return store_place_; }
  [[nodiscard]] std::uint16_t port() const { return store_place_.port; }
  // The ranks' end of the door to the store, or -1 if the store is on another node.
  [[nodiscard]] int door() const { return door_.get(); }

  // With per_step: training_over() is true once all steps have counted, training_failed() once no
  // further step can count. counted_steps(): steps that have counted with this rank.
  // silent_ranks(): a descriptor that yields the numbers (int) of ranks that were silent for too
  // long.
  [[nodiscard]] bool training_over() const { return server_ && server_->counters().over; }
  [[nodiscard]] bool training_failed() const { return server_ && server_->counters().failed; }
  [[nodiscard]] std::int64_t counted_steps(int rank) const {
    return server_ && options_.per_step ? server_->counted(rank) : 0;
  }
  [[nodiscard]] int silent_ranks() const { return silent_ranks_.get(); }

  // An eventfd, readable once verdict() is valid.
  [[nodiscard]] int verdict_ready() const { return verdict_ready_.get(); }
  [[nodiscard]] const Verdict& verdict() const { return verdict_; }

  // Call when all ranks here have succeeded. The verdict is "ok" once all nodes have called this.
  void say_done();
  // The nodes that have not called say_done().
  [[nodiscard]] std::string still_running() const;
  // Proposes the end of the job. The verdict is the first proposal of any node.
  void say_over(const std::string& why, Verdict::Kind kind = Verdict::Kind::over);
  // Call when a rank has ended without failure. If the ranks have not met yet, this rank counts as
  // lost.
  void say_rank_ended(int rank, const std::string& how);
  // Publishes the root cause of the failures here. Returns the failures here and the other nodes'
  // root causes.
  [[nodiscard]] std::vector<Failure> share_failures(const std::vector<Failure>& here,
                                                    std::chrono::milliseconds timeout);

 private:
  void open_store();
  void watch();

  const LaunchOptions& options_;
  comm::Secret secret_;
  StorePlace store_place_;
  Descriptor silent_ranks_, to_silent_ranks_;  // a pipe from the server's thread
  std::unique_ptr<comm::StoreServer> server_;  // node 0's
  Descriptor door_;                            // the ranks' end, see door()
  std::shared_ptr<comm::StoreClient> client_;
  std::unique_ptr<comm::StoreClient> watching_;  // the watcher's connection, which blocks for hours
  std::vector<int> ranks_on_;                    // by node
  Descriptor verdict_ready_, stop_watching_;     // eventfds
  Verdict verdict_;                              // written by the watcher before verdict_ready_
  bool cut_off_ = false;                         // a node did not confirm the verdict
  std::thread watcher_;
};

}  // namespace ringsmith::launch
