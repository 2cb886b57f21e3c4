#include "labs/torch/messages.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "labs/torch/errors.hpp"
#include "labs/torch/flat.hpp"
#include "runtime/comm/failure/rank_report.hpp"

namespace ringsmith::pytorch {

namespace {

constexpr int kSender = 0, kReceiver = 1;

// Pauses between two looks for a message from any source, doubled each time.
constexpr std::chrono::microseconds kFirstPause{50}, kLastPause{5000};

constexpr std::size_t kHeaderWords = 3;
using HeaderWords = std::array<std::int64_t, kHeaderWords>;

comm::Buffer bytes_at(void* data, std::int64_t bytes, comm::Site site) {
  return {static_cast<std::byte*>(data), Elements(static_cast<std::size_t>(bytes)), DType::u8,
          site};
}

std::string describe(std::int64_t type, std::int64_t bytes) {
  return std::to_string(bytes) + " bytes of " + at::toString(static_cast<at::ScalarType>(type));
}

// " at train.py:12", or nothing.
std::string place_of(comm::Site site) {
  const std::string text = comm::text_of(site);
  return text.empty() ? "" : " at " + text;
}

// Returns the reason why the message does not fit the tensor, or "".
std::string misfit(const Message& wanted, std::int64_t type, std::int64_t bytes) {
  const auto mine = static_cast<std::int64_t>(wanted.tensor.scalar_type());
  const auto room = static_cast<std::int64_t>(wanted.tensor.nbytes());
  if (mine == type && room == bytes) return {};
  return "recv() of tag " + std::to_string(wanted.tag) + " has room for " + describe(mine, room) +
         ", but the sender sent " + describe(type, bytes) + ": sender and receiver must agree";
}

}  // namespace

void Direction::post(Message message) {
  Lock lock(mutex_);
  if (take_at_once(message, lock)) return;
  posted_.push_back(std::move(message));
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  due_.notify_one();
}

void Direction::work() {
  Lock lock(mutex_);
  while (true) {
    due_.wait(lock, [this] { return stopping_ || !posted_.empty(); });
    if (posted_.empty()) return;
    try {
      if (broken_) std::rethrow_exception(broken_);
      if (stopping_ && !finishes())
        throw Aborted("the group was destroyed while a recv() had no message yet");
      if (must_wait(lock)) continue;
      if (!group_) {
        lock.unlock();
        auto made = connect_();
        lock.lock();
        group_ = std::move(made);
        continue;
      }
      serve(lock);
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      if (!broken_) broken_ = current_as_python_error(words_ + place_of(posted_.front().site));
      fail_all(lock);
    }
  }
}

void Direction::fail_all(Lock& lock) {
  std::list<Message> all;
  all.swap(posted_);
  lock.unlock();
  for (Message& message : all)
    if (!message.any || message.any->leave()) message.done(broken_);
  lock.lock();
}

void Direction::stop() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
    if (group_ && !posted_.empty() && !finishes()) group_->abort(comm::Site{});
  }
  due_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Outgoing::serve(Lock& lock) {
  const Message& next = posted_.front();  // remains in the list, so that fail_all() finds it
  lock.unlock();
  {
    const at::NoGradGuard no_grad;
    const at::Tensor flat = next.tensor.contiguous();
    const auto bytes = static_cast<std::int64_t>(flat.nbytes());
    HeaderWords header{next.tag, static_cast<std::int64_t>(flat.scalar_type()), bytes};
    group().send(comm::Buffer(std::span<std::int64_t>(header), next.site), kReceiver);
    if (bytes > 0) group().send(bytes_at(flat.data_ptr(), bytes, next.site), kReceiver);
  }
  lock.lock();
  const Message sent = std::move(posted_.front());
  posted_.pop_front();
  lock.unlock();
  sent.done(nullptr);
  lock.lock();
}

bool Incoming::take_at_once(Message& message, Lock& lock) {
  const auto found = kept_.find(message.tag);
  if (found == kept_.end()) return false;
  if (message.any && !message.any->take()) return true;  // another direction has served it
  message.any = nullptr;
  const Kept kept = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) kept_.erase(found);
  lock.unlock();
  const std::string wrong = misfit(message, kept.header.type, kept.header.bytes);
  if (!wrong.empty()) {
    message.done(std::make_exception_ptr(PythonError(MismatchError(wrong))));
  } else {
    const at::NoGradGuard no_grad;
    copy_in(kept.payload.data(), message.tensor);
    message.done(nullptr);
  }
  return true;
}

bool Incoming::must_wait(Lock& lock) {
  posted_.remove_if([](const Message& m) { return m.any && m.any->taken(); });
  if (posted_.empty()) return true;
  if (std::ranges::any_of(posted_, [](const Message& m) { return m.any == nullptr; })) return false;
  lock.unlock();
  // The loss is looked up first: a message that was sent before it still counts.
  const std::string loss = connected() ? group().loss_of(kSender) : std::string();
  const bool here = connected() ? group().has_message(kSender) : arrived_();
  lock.lock();
  if (!here && !loss.empty()) throw PeerLost(loss, seen_by(kReceiver, kSender));
  if (here) {
    pause_ = {};
    return false;
  }
  const auto now = std::chrono::steady_clock::now();
  const auto late =
      std::ranges::find_if(posted_, [&](const Message& m) { return m.any->until() <= now; });
  if (late != posted_.end()) {
    const Message message = std::move(*late);
    posted_.erase(late);
    if (!message.any->take()) return true;
    lock.unlock();
    message.done(std::make_exception_ptr(PythonError(
        TimeoutError("recv() of tag " + std::to_string(message.tag) + " from any source" +
                     place_of(message.site) + ": no rank sent such a message in time"))));
    lock.lock();
    return true;
  }
  pause_ = std::clamp(2 * pause_, kFirstPause, kLastPause);
  wait_for_post(lock, pause_);
  return true;
}

// The first posted recv() of the tag. If it is from any source, this direction takes it.
std::list<Message>::iterator Incoming::find_posted(std::int64_t tag) {
  const auto found = std::ranges::find_if(
      posted_, [&](const Message& m) { return m.tag == tag && (!m.any || m.any->take()); });
  if (found != posted_.end()) found->any = nullptr;
  return found;
}

void Incoming::serve(Lock& lock) {
  const comm::Site site = posted_.front().site;
  lock.unlock();
  HeaderWords words{};
  group().recv(comm::Buffer(std::span<std::int64_t>(words), site), kSender);
  const Header header{words[0], words[1], words[2]};
  lock.lock();
  const auto wanted = find_posted(header.tag);
  if (wanted == posted_.end()) {
    lock.unlock();
    Kept kept{header, std::vector<std::byte>(static_cast<std::size_t>(header.bytes))};
    if (header.bytes > 0) group().recv(bytes_at(kept.payload.data(), header.bytes, site), kSender);
    lock.lock();
    // A recv() of this tag may have been posted while the payload arrived. If so, serve it.
    const auto late = find_posted(header.tag);
    kept_[header.tag].push_back(std::move(kept));
    if (late == posted_.end()) return;
    Message message = std::move(*late);
    posted_.erase(late);
    take_at_once(message, lock);
    lock.lock();
    return;
  }
  // Keep it posted while its payload arrives, so that fail_all() finds it.
  lock.unlock();
  const std::string wrong = misfit(*wanted, header.type, header.bytes);
  receive(*wanted, header);
  lock.lock();
  const Message message = std::move(*wanted);
  posted_.erase(wanted);
  lock.unlock();
  message.done(wrong.empty() ? nullptr
                             : std::make_exception_ptr(PythonError(MismatchError(wrong))));
  lock.lock();
}

// Receives the payload into the message's tensor, or discards a payload that does not fit.
void Incoming::receive(Message& message, const Header& header) {
  if (header.bytes == 0) return;
  const bool fits = misfit(message, header.type, header.bytes).empty();
  if (fits && message.tensor.is_contiguous() && !message.tensor.is_conj()) {
    group().recv(bytes_at(message.tensor.data_ptr(), header.bytes, message.site), kSender);
    return;
  }
  std::vector<std::byte> payload(static_cast<std::size_t>(header.bytes));
  group().recv(bytes_at(payload.data(), header.bytes, message.site), kSender);
  const at::NoGradGuard no_grad;
  if (fits) copy_in(payload.data(), message.tensor);
}

}  // namespace ringsmith::pytorch
