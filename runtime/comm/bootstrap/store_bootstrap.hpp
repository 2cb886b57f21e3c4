// Ranks that meet at a TCP store: started by ringrun (whose launcher holds the store), by hand with
// RANK and its sisters in the environment, or by srun (rank 0 holds it).
#pragma once

#include "runtime/comm/bootstrap/bootstrap.hpp"
#include "runtime/comm/bootstrap/exchange.hpp"
#include "runtime/comm/bootstrap/place.hpp"
#include "runtime/comm/bootstrap/store/server.hpp"

namespace ringsmith::comm {

class StoreBootstrap : public Bootstrap {
 public:
  // Rank 0 starts the store, unless the launcher has; everybody connects, which waits for whoever
  // is to hold it. TimeoutError and MismatchError as Exchange.
  StoreBootstrap(const JobPlace& place, const Secret& secret, std::chrono::milliseconds timeout);
  ~StoreBootstrap() override;
  StoreBootstrap(const StoreBootstrap&) = delete;
  StoreBootstrap& operator=(const StoreBootstrap&) = delete;

  [[nodiscard]] int rank() const override { return place_.rank; }
  [[nodiscard]] int size() const override { return place_.world; }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& record) override;
  [[nodiscard]] std::optional<LostMember> lost_rank() override;
  [[nodiscard]] bool ends_survivors() const override {
    return place_.launcher_holds_store || place_.kind == BootstrapKind::slurm;
  }

 private:
  void let_others_read(int expected = 0);

  JobPlace place_;
  std::unique_ptr<StoreServer> server_;  // rank 0's, if the launcher has none
  std::unique_ptr<Exchange> exchange_;
};

}  // namespace ringsmith::comm
