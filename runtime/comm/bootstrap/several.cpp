#include "runtime/comm/bootstrap/several.hpp"

#include "runtime/base/error.hpp"

namespace ringsmith::comm {

namespace {

// A list as one record: "3:abc" for each.
std::string join(const std::vector<std::string>& records) {
  std::string all;
  for (const std::string& record : records) all += std::to_string(record.size()) + ':' + record;
  return all;
}

std::vector<std::string> split(const std::string& all) {
  std::vector<std::string> records;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t colon = all.find(':', at);
    if (colon == std::string::npos) throw CommError("corrupt bootstrap record '" + all + "'");
    const std::size_t length = std::stoull(all.substr(at, colon - at));
    records.push_back(all.substr(colon + 1, length));
    at = colon + 1 + length;
  }
  return records;
}

}  // namespace

ProcessMeeting::ProcessMeeting(std::shared_ptr<Bootstrap> processes, int ranks_per_process)
    : processes_(std::move(processes)), mine_(static_cast<std::size_t>(ranks_per_process)) {}

std::vector<std::string> ProcessMeeting::exchange() const {
  std::vector<std::string> all;
  const auto records = processes_->all_gather(join(mine_));
  for (std::size_t p = 0; p < records.size(); ++p) {
    const std::vector<std::string> theirs = split(records[p]);
    if (theirs.size() != mine_.size())
      throw UsageError("process " + std::to_string(p) + " has " + std::to_string(theirs.size()) +
                       " ranks and this one " + std::to_string(mine_.size()) +
                       ": give all processes the same number");
    all.insert(all.end(), theirs.begin(), theirs.end());
  }
  return all;
}

std::vector<std::string> ProcessMeeting::all_gather(int thread, const std::string& record) {
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
