// The ways in which a job's ranks find each other: Open MPI, a folder, a TCP store. threads.hpp is
// for ranks that are threads, forked.hpp for forked ranks.
#pragma once

#include <chrono>
#include <memory>

#include "runtime/job/place.hpp"

namespace ringsmith::comm {

class Exchange;
class Secret;
class StoreServer;

// Joins the job within the timeout. `automatic` derives the kind from the environment (place.hpp).
// Throws UsageError if the environment is incomplete, and the errors of the constructors below.
[[nodiscard]] std::shared_ptr<Bootstrap> make_bootstrap(BootstrapKind kind,
                                                        std::chrono::milliseconds timeout);
// Makes make_bootstrap(automatic) return `bootstrap`. For forked ranks (forked.hpp), whose
// environment does not contain their place.
void assign_bootstrap(std::shared_ptr<Bootstrap> bootstrap);

// Open MPI, used only for rank, size and the exchange of records.
//
// Unless the program has initialised MPI, this class does so and finalises MPI at exit. After an
// error it does not finalise MPI: MPI_Finalize would wait for peers that may never arrive.
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

// Ranks meet in a folder on a shared file system or volume. They need no port and no secret; only
// the folder's permissions protect the job.
//
//     FOLDER/rank-2          rank 2 is here: its world size and place
//     FOLDER/record-2-0      its record in the first exchange
//     FOLDER/left-2          it has finished; the last rank to leave removes the folder
//     FOLDER/verdict         an error was found: all ranks fail with this message
//
// Files appear complete and are never replaced: each is written under another name, then linked. A
// crashed job's folder is rejected with an error. So is a folder that another user owns or may
// write to, because that user could pose as a rank.
class FileBootstrap : public Bootstrap {
 public:
  // Creates a missing folder (mode 0700). Throws MismatchError if the rank is taken or world sizes
  // disagree. Throws UsageError if the folder cannot be used, is writable by other users, or holds
  // other files.
  FileBootstrap(std::string folder, int rank, int world, std::chrono::milliseconds timeout);
  ~FileBootstrap() override;
  FileBootstrap(const FileBootstrap&) = delete;
  FileBootstrap& operator=(const FileBootstrap&) = delete;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return world_; }
  // Throws TimeoutError naming the missing ranks, and MismatchError if the ranks disagree.
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& record) override;

 private:
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }
  [[nodiscard]] std::string record_name(int rank, std::uint64_t round) const;
  // Returns false if the file already exists.
  [[nodiscard]] bool create(const std::string& name, const std::string& text) const;
  // Throws the verdict, if there is one, with the remedy after it.
  void look_at_members(const std::string& remedy = "") const;
  [[noreturn]] void report_missing() const;
  [[noreturn]] void fail(char kind, const std::string& text) const;

  std::string folder_;
  int rank_, world_;
  std::chrono::milliseconds timeout_;
  std::uint64_t round_ = 0;
};

// Ranks meet at a TCP store. ringrun's launcher holds the store of its ranks; rank 0 holds the
// store if the ranks were started by srun, or by hand with RANK etc. in the environment.
class StoreBootstrap : public Bootstrap {
 public:
  // Starts the store on rank 0, unless the launcher holds it, and connects. Throws TimeoutError if
  // the store does not answer, MismatchError as StoreClient and Exchange do, and UsageError if rank
  // 0 cannot listen.
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
  std::unique_ptr<StoreServer> server_;  // on rank 0, if the launcher holds no store
  std::unique_ptr<Exchange> exchange_;
};

}  // namespace ringsmith::comm
