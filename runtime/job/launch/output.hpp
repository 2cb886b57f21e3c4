// Handles the ranks' output. One thread reads it, shows it line by line with the rank in front,
// writes it to files, and keeps the last lines of each rank for the report. A carriage return ends
// a piece of a line, which is shown immediately, for progress displays that overwrite themselves.
//
// If the terminal stops reading (because of a pager or a suspended ssh), ranks that print are
// blocked. The launcher's supervision is not, because it runs on another thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/deadline.hpp"
#include "runtime/base/process.hpp"

namespace ringsmith::launch {

struct OutputOptions {
  std::string log_folder;  // "": no files
  bool show = true;
  bool prefix = true;
  bool more_ranks = false;  // add() may be called until stop_at()
};

class Output {
 public:
  static constexpr std::size_t kTail = 20;  // lines kept per rank
  // In bytes. A line is buffered until it ends; a longer line is split.
  static constexpr std::size_t kMostLine = std::size_t{16} << 20;

  // `closed` (an eventfd) is signalled when standard output or standard error cannot be written.
  Output(OutputOptions options, int closed);
  ~Output();

  // Adds the two streams of a rank. Throws UsageError if its files cannot be created. After
  // start(), only a restarted rank may be added, and its files are appended to.
  void add(int rank, Descriptor out, Descriptor err);
  void start();
  // Stops reading at the deadline, even if a process that left its rank's group still holds a
  // stream open. Without this call, and without more_ranks, reading stops when all streams have
  // ended.
  void stop_at(Deadline deadline);
  // An eventfd, readable when everything has been read and shown.
  [[nodiscard]] int done() const { return done_.get(); }

  [[nodiscard]] std::vector<std::string> tail(int rank) const;
  [[nodiscard]] std::string log_of(int rank) const;  // "" without files
  [[nodiscard]] bool lost() const { return lost_; }  // a file is incomplete: a write failed

 private:
  struct RankStream {
    int rank = 0;
    bool is_error = false;
    Descriptor from, file;
    std::string line;       // the current, incomplete line
    bool returned = false;  // shown up to a carriage return; the next piece replaces it
  };
  void gather();
  void take_new_streams();
  void take(RankStream& stream, std::string_view bytes);  // empty: the stream has ended
  void take_piece(RankStream& stream, std::string_view piece, char end, std::string& shown);

  OutputOptions options_;
  int closed_;
  Descriptor stop_, done_, added_;         // eventfds
  std::atomic<std::int64_t> stop_ms_{-1};  // ms until the reading stops, once stop_ is readable
  std::atomic<bool> lost_{false};
  std::vector<RankStream> streams_;
  mutable std::mutex mutex_;  // protects tails_ and new_streams_
  std::vector<RankStream> new_streams_;
  std::map<int, std::deque<std::string>> tails_;  // by rank
  std::thread thread_;
};

}  // namespace ringsmith::launch
