#include "labs/torch/bootstrap.hpp"

#include <algorithm>
#include <cstdint>
#include <thread>

#include "labs/torch/errors.hpp"

namespace ringsmith::pytorch {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Pause between two polls, doubled each time up to kLastLook.
constexpr milliseconds kFirstLook{1}, kLastLook{20};

}  // namespace

std::string StoreMeeting::key(int rank) const {
  return place_.prefix + "/" + std::to_string(round_) + "/" + std::to_string(rank);
}

std::vector<std::string> StoreMeeting::all_gather(const std::string& record) {
  store_->set(key(rank()), std::vector<std::uint8_t>(record.begin(), record.end()));
  const auto until = Clock::now() + place_.timeout;
  std::vector<std::string> records;
  for (int r = 0; r < size(); ++r) {
    await(r, until);
    const std::vector<std::uint8_t> bytes = store_->get(key(r));
    records.emplace_back(bytes.begin(), bytes.end());
  }
  ++round_;
  return records;
}

bool StoreMeeting::has_arrived(int rank) const {
  if (store_->check({key(rank)})) return true;
  if (const std::string why = lost_ ? lost_(rank) : std::string(); !why.empty())
    throw PeerLost(why, seen_by(this->rank(), rank));
  return false;
}

void StoreMeeting::await(int rank, Clock::time_point until) const {
  for (milliseconds pause = kFirstLook; !has_arrived(rank);
       pause = std::min(2 * pause, kLastLook)) {
    if (Clock::now() >= until) report_missing();
    std::this_thread::sleep_for(pause);
  }
}

std::string StoreMeeting::name(int rank) const {
  return std::to_string(place_.names.empty() ? rank
                                             : place_.names.at(static_cast<std::size_t>(rank)));
}

void StoreMeeting::report_missing() const {
  std::string missing;
  int first = -1;
  for (int r = 0; r < size(); ++r) {
    if (store_->check({key(r)})) continue;
    if (first < 0) first = r;
    missing += (missing.empty() ? "" : ", ") + name(r);
  }
  const std::string where = place_.scope.empty() ? "" : " [" + place_.scope + ']';
  throw TimeoutError("rank " + name(rank()) + " has waited " +
                         std::to_string(place_.timeout.count()) +
                         " ms in PyTorch's store for rank " + missing + ", " + place_.purpose +
                         ": it never arrived" + where,
                     seen_by(rank(), first));
}

}  // namespace ringsmith::pytorch
