// The ways in which the ranks of a job find each other: Open MPI, a folder, a TCP store; and the
// choice among them. Ranks as threads: threads.hpp; as children of one process: forked.hpp.
#pragma once

#include <chrono>
#include <memory>

#include "runtime/comm/bootstrap/place.hpp"

namespace ringsmith::comm {

class Exchange;
class Secret;
class StoreServer;

// What the environment shows, or the kind that was asked for: place.hpp. Joins the job, within the
// timeout; UsageError if the environment does not say enough.
[[nodiscard]] std::shared_ptr<Bootstrap> make_bootstrap(BootstrapKind kind,
                                                        std::chrono::milliseconds timeout);
// From now on this process is a rank of that job, and `automatic` gives this bootstrap: for one
// that was forked with its place (forked.hpp), of which the environment says nothing.
void assign_bootstrap(std::shared_ptr<Bootstrap> bootstrap);

// Open MPI as a telephone book: rank, size, and one exchange of records. No data goes through it.
//
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

// Ranks that meet in a folder which all of them see: no port, no secret but the folder's
// permissions. For hosts that share a file system, and for containers that share a volume.
//
//     FOLDER/rank-2          rank 2 is here: its world size and place
//     FOLDER/record-2-0      its record in the first exchange
//     FOLDER/left-2          it needs nothing any more; the last to leave removes the folder
//     FOLDER/verdict         something is wrong: all ranks fail with these words
//
// Files appear whole, under a name that nobody else can take: written aside, then linked.
// A folder that an earlier job left behind (it crashed) is noticed and named, never used; nor is
// one that another user owns or may write to, who could then speak for ranks.
class FileBootstrap : public Bootstrap {
 public:
  // Makes the folder (mode 0700) if it is not there. MismatchError if the rank is taken or world
  // sizes disagree; UsageError if it cannot be used, is open to other users, or holds other files.
  FileBootstrap(std::string folder, int rank, int world, std::chrono::milliseconds timeout);
  ~FileBootstrap() override;
  FileBootstrap(const FileBootstrap&) = delete;
  FileBootstrap& operator=(const FileBootstrap&) = delete;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return world_; }
  // TimeoutError naming the missing ranks.
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& record) override;

 private:
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }
  [[nodiscard]] std::string record_name(int rank, std::uint64_t round) const;
  // False if there is a file of that name.
  [[nodiscard]] bool create(const std::string& name, const std::string& text) const;
  void look_at_members() const;
  [[noreturn]] void report_missing() const;
  [[noreturn]] void fail(char kind, const std::string& text) const;

  std::string folder_;
  int rank_, world_;
  std::chrono::milliseconds timeout_;
  std::uint64_t round_ = 0;
};

// Ranks that meet at a TCP store: started by ringrun (whose launcher holds the store), by hand with
// RANK and its sisters in the environment, or by srun (rank 0 holds it).
class StoreBootstrap : public Bootstrap {
 public:
  // Rank 0 starts the store, unless the launcher has; everybody connects, which waits for whoever
  // is to hold it. TimeoutError and MismatchError as Exchange.
  StoreBootstrap(const JobPlace& place, const Secret& secret, std::chrono::milliseconds timeout);
  ~StoreBootstrap() override;

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
