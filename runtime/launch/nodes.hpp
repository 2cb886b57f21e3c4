// The launchers of a job among themselves: one per node, all clients of the store that node 0's
// holds. They tell each other how many ranks each starts, and how it ended.
//
//     job/verdict     "ok", or why the job ends; the first to write it decides. To write here is a
//                     launcher's will, so that its death is seen by the others
//     job/done        a counter: nodes whose ranks have all ended well
//     job/heard/N     node N knows the verdict: its ranks end, and it will say what failed there
//     job/failure/N   what failed on node N ("" for nothing), once its ranks have ended; the
//                     launcher's will, if the job had its verdict before
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "runtime/comm/bootstrap/exchange.hpp"
#include "runtime/comm/bootstrap/store/client.hpp"
#include "runtime/comm/bootstrap/store/server.hpp"
#include "runtime/launch/failure.hpp"
#include "runtime/launch/launch.hpp"
#include "runtime/launch/process.hpp"

namespace ringsmith::launch {

struct Verdict {
  // over: something failed; stopped: a ringrun got a signal.
  enum class Kind : char { ok = 'o', over = 'e', stopped = 's', lost = 'l', joined = 'j' };
  Kind kind = Kind::ok;
  int node = -1;     // who decided so, or whose launcher is lost
  std::string text;  // why
};

// The address on which node 0 listens: --bind, else --master-addr's; or all interfaces, if that
// name means the loopback on this host and something else on the other nodes.
[[nodiscard]] std::string listens_on(const LaunchOptions& options);

// The secret that the launchers of a job share. UsageError if there is none.
[[nodiscard]] comm::Secret job_secret(const LaunchOptions& options);

class Nodes {
 public:
  // Starts the store (node 0), which may have to be announced, and waits for all nodes. UsageError,
  // TimeoutError, MismatchError with the node at fault. CommError once `hurry`, a descriptor, is
  // readable.
  Nodes(const LaunchOptions& options, comm::Secret secret,
        const std::function<void(std::uint16_t)>& announce = {}, int hurry = -1);
  ~Nodes();

  [[nodiscard]] RankPlace place_of(int local_rank) const;
  [[nodiscard]] const StorePlace& store() const { return store_place_; }
  [[nodiscard]] std::uint16_t port() const { return store_place_.port; }
  // The outside of the store's door, for the ranks here; -1: the store is on another node.
  [[nodiscard]] int door() const { return door_.get(); }

  // With per_step: all steps have counted; or none can any more; how many have with this rank. And
  // a descriptor to read the numbers of ranks from (int) whose processes were silent for too long.
  [[nodiscard]] bool training_over() const { return server_ && server_->counters().over; }
  [[nodiscard]] bool training_failed() const { return server_ && server_->counters().failed; }
  [[nodiscard]] std::int64_t counted_steps(int rank) const {
    return server_ && options_.per_step ? server_->counted(rank) : 0;
  }
  [[nodiscard]] int silent_ranks() const { return silent_ranks_.get(); }

  // An eventfd, readable once the job's verdict is there.
  [[nodiscard]] int verdict_ready() const { return verdict_ready_.get(); }
  // What it says, then.
  [[nodiscard]] const Verdict& verdict() const { return verdict_; }

  // All ranks here have ended well; when all nodes say so, the verdict is "ok".
  void say_done();
  // The nodes that have not said so.
  [[nodiscard]] std::string still_running() const;
  // Something failed here, or another kind of end came: the verdict, if there is none yet.
  void say_over(const std::string& why, Verdict::Kind kind = Verdict::Kind::over);
  // A rank has ended well: if the ranks have not met yet, they will not, because of it.
  void say_rank_ended(int rank, const std::string& how);
  // After the ranks here have ended: tells what failed here, hears what failed elsewhere.
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
  Descriptor door_;                            // its outside
  std::shared_ptr<comm::StoreClient> client_;
  std::unique_ptr<comm::StoreClient> watching_;  // the watcher's, which waits for hours
  std::vector<int> ranks_on_;                    // by node
  Descriptor verdict_ready_, stop_watching_;     // eventfds
  Verdict verdict_;                              // written by the watcher before verdict_ready_
  bool cut_off_ = false;                         // a node did not hear it
  std::thread watcher_;
};

}  // namespace ringsmith::launch
