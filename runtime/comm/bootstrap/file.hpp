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
#pragma once

#include <chrono>

#include "runtime/comm/bootstrap/bootstrap.hpp"

namespace ringsmith::comm {

class FileBootstrap : public Bootstrap {
 public:
  // Makes the folder (mode 0700) if it is not there. MismatchError if the rank is taken or world
  // sizes disagree; UsageError if the folder cannot be used, is open to other users, or holds other
  // files.
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

}  // namespace ringsmith::comm
