// The backend's send and recv: which direction serves a call, and where its two ranks meet. The
// directions are in messages.hpp.
#include <chrono>

#include "labs/torch/backend.hpp"
#include "labs/torch/checks.hpp"
#include "labs/torch/errors.hpp"

namespace ringsmith::pytorch {

using c10d::OpType;

Backend::Pending Backend::send(Tensors& tensors, int to, int tag) {
  return message(tensors, to, tag, true);
}

Backend::Pending Backend::recv(Tensors& tensors, int from, int tag) {
  return message(tensors, from, tag, false);
}

// Posted to the directions from all other ranks: the first that has a message of the tag takes it.
Backend::Pending Backend::recvAnysource(Tensors& tensors, int tag) {
  return with_python_errors([&]() -> Pending {
    const at::Tensor data = only_one("recv", tensors);
    check_tensor("recv", data, true);
    if (getSize() == 1) throw UsageError("recv from any source: the group has no other rank");
    auto job = c10::make_intrusive<Job>(getRank(), OpType::RECVANYSOURCE, "ringsmith:recv", tensors,
                                        nullptr);
    const auto any = std::make_shared<AnySource>(
        getSize() - 1, std::chrono::steady_clock::now() + timeout_.load());
    const comm::Site site = python_site();
    const std::lock_guard lock(directions_);
    for (int peer = 0; peer < getSize() && !any->taken(); ++peer) {
      if (peer == getRank()) continue;
      const auto done = [job, peer](const std::exception_ptr& e) {
        job->set_source(peer);
        job->end(e);
      };
      incoming_from(peer).post({data, tag, site, done, any});
    }
    return job;
  });
}

Backend::Pending Backend::message(Tensors& tensors, int peer, int tag, bool out) {
  return with_python_errors([&]() -> Pending {
    const char* const call = out ? "send" : "recv";
    const at::Tensor data = only_one(call, tensors);
    check_tensor(call, data, !out);
    if (peer < 0 || peer >= getSize() || peer == getRank())
      throw UsageError(std::string(call) + ": rank " + std::to_string(peer) +
                       " is not another rank of this group of " + std::to_string(getSize()));
    auto job =
        c10::make_intrusive<Job>(getRank(), out ? OpType::SEND : OpType::RECV,
                                 out ? "ringsmith:send" : "ringsmith:recv", tensors, nullptr);
    Message message{data, tag, python_site(), [job](const std::exception_ptr& e) { job->end(e); }};
    const std::lock_guard lock(directions_);
    if (out)
      outgoing_to(peer).post(std::move(message));
    else
      incoming_from(peer).post(std::move(message));
    return job;
  });
}

Outgoing& Backend::outgoing_to(int peer) {
  auto& direction = outgoing_[peer];
  if (!direction)
    direction = std::make_unique<Outgoing>("send to rank " + std::to_string(peer),
                                           [this, peer] { return connect(getRank(), peer); });
  return *direction;
}

Incoming& Backend::incoming_from(int peer) {
  auto& direction = incoming_[peer];
  if (!direction)
    direction = std::make_unique<Incoming>(
        "recv from rank " + std::to_string(peer), [this, peer] { return connect(peer, getRank()); },
        [this, peer] { return meeting(peer, getRank()).has_arrived(0); });
  return *direction;
}

// Where the two ranks of a direction meet: `from` is rank 0 and `to` rank 1.
StoreMeeting Backend::meeting(int from, int to) const {
  const bool sends = getRank() == from;
  const int peer = sends ? to : from;
  const std::string pair = std::to_string(from) + ", " + std::to_string(to);
  const auto lost = [this, peer](int) {
    return ending_ ? std::string("the group was destroyed before the other rank arrived")
                   : group_->loss_of(peer);
  };
  return {
      store_,
      StoreMeeting::Place{"ringsmith/from-" + std::to_string(from) + "-to-" + std::to_string(to),
                          sends ? 0 : 1,
                          2,
                          timeout_,
                          "send and recv between ranks " + pair + ", here 0 and 1" +
                              (scope_.empty() ? "" : ", " + scope_),
                          {from, to}},
      lost};
}

std::shared_ptr<Group> Backend::connect(int from, int to) {
  comm::GroupOptions options = options_;
  options.timeout = timeout_;
  auto group = std::make_shared<Group>(std::make_shared<StoreMeeting>(meeting(from, to)), options);
  const std::lock_guard lock(links_);
  connected_.push_back(group);
  group->set_timeout(timeout_);  // it may have been set meanwhile
  return group;
}

// Takes only links_: a thread that holds directions_ may wait for the GIL, which the caller holds.
void Backend::set_timeout(std::chrono::milliseconds timeout) {
  if (timeout <= std::chrono::milliseconds::zero())
    throw PythonError(UsageError("set_timeout: the timeout is " + std::to_string(timeout.count()) +
                                 " ms, but must be positive"));
  const std::lock_guard lock(links_);
  timeout_ = timeout;
  group_->set_timeout(timeout);
  for (const auto& link : connected_)
    if (const auto group = link.lock()) group->set_timeout(timeout);
}

}  // namespace ringsmith::pytorch
