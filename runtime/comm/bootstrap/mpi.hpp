// Open MPI as a telephone book: rank, size, and one exchange of records. No data goes through it.
#pragma once

#include "runtime/comm/bootstrap/bootstrap.hpp"

namespace ringsmith::comm {

// Initialises MPI unless the program has done so. At exit, MPI is finalised if all went well; after
// an error the process ends without: MPI_Finalize would wait for peers that may never come.
class MpiBootstrap : public Bootstrap {
 public:
  explicit MpiBootstrap(std::chrono::milliseconds timeout);  // of each all_gather
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& record) override;
  void abandon() override;
  [[nodiscard]] bool ends_survivors() const override { return true; }

 private:
  std::chrono::milliseconds timeout_;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace ringsmith::comm
