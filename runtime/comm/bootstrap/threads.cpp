#include "runtime/comm/bootstrap/threads.hpp"

#include <charconv>

#include "runtime/base/error.hpp"

namespace ringsmith::comm {

std::string join_records(const std::vector<std::string>& records) {
  std::string all;
  for (const std::string& record : records) all += std::to_string(record.size()) + ':' + record;
  return all;
}

std::vector<std::string> split_records(const std::string& all) {
  std::vector<std::string> records;
  const char* const end = all.data() + all.size();
  for (const char* at = all.data(); at < end;) {
    std::size_t length = 0;
    const auto [colon, error] = std::from_chars(at, end, length);
    if (error != std::errc() || colon == end || *colon != ':' ||
        length > static_cast<std::size_t>(end - colon - 1))
      throw CommError("corrupt bootstrap record '" + all + "'");
    records.emplace_back(colon + 1, length);
    at = colon + 1 + length;
  }
  return records;
}

std::vector<std::string> ThreadRendezvous::exchange() const {
  std::vector<std::string> all;
  const auto records = processes_->all_gather(join_records(mine_));
  for (std::size_t p = 0; p < records.size(); ++p) {
    const std::vector<std::string> theirs = split_records(records[p]);
    if (theirs.size() != mine_.size())
      throw UsageError("process " + std::to_string(p) + " has " + std::to_string(theirs.size()) +
                       " ranks and this one " + std::to_string(mine_.size()) +
                       ": give all processes the same number");
    all.insert(all.end(), theirs.begin(), theirs.end());
  }
  return all;
}

std::vector<std::string> ThreadRendezvous::all_gather(int thread, const std::string& record) {
  std::unique_lock lock(mutex_);
  mine_[static_cast<std::size_t>(thread)] = record;
  if (++arrived_ == mine_.size()) {
    // The others wait for the next generation, so that nobody else needs the lock.
    try {
      error_ = nullptr;
      result_ = exchange();
    } catch (...) {
      error_ = std::current_exception();
    }
    arrived_ = 0;
    ++generation_;
    changed_.notify_all();
  } else {
    const int generation = generation_;
    changed_.wait(lock, [&] { return generation_ != generation; });
  }
  // Nobody can complete the next exchange before this thread has taken part in it.
  if (error_) std::rethrow_exception(error_);
  return result_;
}

}  // namespace ringsmith::comm
