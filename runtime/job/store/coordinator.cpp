#include "runtime/job/store/coordinator.hpp"

#include <algorithm>
#include <sstream>

#include "runtime/base/error.hpp"
#include "runtime/comm/types/settings.hpp"

namespace ringsmith::comm::store {

namespace {

constexpr std::size_t kMostWho = 512;  // bytes

}  // namespace

std::string QuorumAsk::encode() const {
  return std::to_string(rank) + ' ' + std::to_string(static_cast<int>(vote)) + ' ' +
         std::to_string(static_cast<int>(last)) + ' ' + who;
}

QuorumAsk QuorumAsk::decode(const std::string& text) {
  std::istringstream in(text);
  QuorumAsk ask;
  int vote = -1;
  if (!(in >> ask.rank >> vote >> ask.last) || ask.rank < 0 || vote < 0 || vote > 2)
    throw CommError("a rank's request for a quorum is not in this version's format");
  ask.vote = static_cast<Vote>(vote);
  std::getline(in >> std::ws, ask.who);
  if (ask.who.size() > kMostWho)
    throw CommError("a rank's description in its request for a quorum is too long");
  return ask;
}

std::string QuorumAnswer::encode() const {
  std::ostringstream out;
  out << counts << ' ' << over << ' ' << id << ' ' << step << ' ' << joining;
  for (const int rank : ranks) out << ' ' << rank;
  return out.str();
}

QuorumAnswer QuorumAnswer::decode(const std::string& text) {
  std::istringstream in(text);
  QuorumAnswer answer;
  if (!(in >> answer.counts >> answer.over >> answer.id >> answer.step >> answer.joining))
    throw CommError("the coordinator's answer is not in this version's format");
  for (int rank = 0; in >> rank;) answer.ranks.push_back(rank);
  return answer;
}

void Coordinator::ask(Caller caller, QuorumAsk ask, Clock::time_point now) {
  require(ask.rank < options_.world, "rank " + std::to_string(ask.rank) + " asks for a quorum of " +
                                         std::to_string(options_.world) +
                                         " ranks, which are numbered from 0");
  Worker* worker = find(caller);
  const bool joins = worker == nullptr;
  if (joins) {
    // Drops an older process that is still connected with this rank.
    for (auto* workers : {&members_, &joiners_})
      for (Worker& other : *workers)
        if (other.caller != nullptr && other.rank == ask.rank) {
          dropped_.push_back(other.caller);
          other.caller = nullptr;
        }
    std::erase_if(joiners_, [](const Worker& w) { return w.caller == nullptr; });
    worker = &joiners_.emplace_back();
    worker->caller = caller;
    worker->rank = ask.rank;
  }
  worker->who = std::move(ask.who);
  worker->vote = ask.vote;
  worker->last = ask.last;
  worker->waits = true;
  if (ask.vote == Vote::no && worker >= members_.data() &&
      worker < members_.data() + members_.size())
    give_up(*worker, "has abandoned the step");
  // A joining rank sets no deadline: it waits for the members' step, however long that takes.
  if (!due_ && (id_ == 0 || !joins)) due_ = now + options_.patience;
  settle(now);
}

void Coordinator::lost(Caller caller, Clock::time_point now) {
  std::erase(dropped_, caller);
  std::erase_if(joiners_, [&](const Worker& w) { return w.caller == caller; });
  if (Worker* worker = find(caller); worker != nullptr) {
    give_up(*worker, "is lost");
    worker->caller = nullptr;
    settle(now);
  }
  const auto waits = [](const Worker& w) { return w.caller != nullptr && w.waits; };
  if (std::ranges::none_of(members_, waits) && std::ranges::none_of(joiners_, waits)) due_.reset();
}

void Coordinator::give_up(const Worker& member, const char* how) {
  const auto place = static_cast<int>(&member - members_.data());
  given_up_.push_back(
      {id_, place, "rank " + std::to_string(place) + " (" + member.who + ") " + how});
}

Coordinator::Worker* Coordinator::find(Caller caller) {
  for (auto* workers : {&members_, &joiners_})
    for (Worker& worker : *workers)
      if (worker.caller == caller) return &worker;
  return nullptr;
}

std::optional<Coordinator::Reply> Coordinator::take_reply(Caller caller, Clock::time_point now) {
  if (due_ && now >= *due_) settle(now);
  Worker* const worker = find(caller);
  return worker != nullptr ? std::exchange(worker->reply, {}) : std::nullopt;
}

bool Coordinator::is_dropped(Caller caller) const {
  return std::ranges::find(dropped_, caller) != dropped_.end();
}

std::size_t Coordinator::joiners() const { return id_ == 0 ? 0 : joiners_.size(); }

void Coordinator::settle(Clock::time_point now) {
  if (over_ || !failure_.empty()) return answer_all(false);
  bool late = due_ && now >= *due_;
  if (id_ > 0 && late && drop_silent()) {  // if too few remain, dropped ranks may return in time
    due_ = now + options_.patience;
    late = false;
  }
  const auto is_there = [](const Worker& w) { return w.caller != nullptr; };
  if (!std::ranges::all_of(members_,
                           [](const Worker& w) { return w.caller == nullptr || w.waits; }))
    return;
  const bool counts =
      id_ > 0 && std::ranges::all_of(members_, [](const Worker& w) { return w.vote == Vote::yes; });
  const bool any_state = std::ranges::any_of(
      members_, [&](const Worker& w) { return is_there(w) && (w.has_state || counts); });
  if (id_ > 0 && step_ + (counts ? 1 : 0) > 0 && !any_state)
    return fail("no remaining rank has the training state after " +
                std::to_string(step_ + (counts ? 1 : 0)) + " steps");
  const auto there =
      static_cast<int>(std::ranges::count_if(members_, is_there) + std::ssize(joiners_));
  if (there < (id_ == 0 && !late ? options_.world : options_.least)) {
    if (!due_) due_ = now + options_.patience;
    if (late)
      fail("only " + std::to_string(there) + " of " + std::to_string(options_.world) +
           " ranks are present, " + std::to_string(options_.least) +
           " are needed (--min-ranks), and none has joined for " +
           std::to_string(options_.patience.count() / 1000.0).substr(0, 4) +
           " s: " + name_missing() + " missing");
    return;
  }
  form(counts);
}

bool Coordinator::drop_silent() {
  const std::size_t before = silent_ranks_.size();
  for (Worker& worker : members_)
    if (worker.caller != nullptr && !worker.waits) {
      dropped_.push_back(worker.caller);
      silent_ranks_.push_back(worker.rank);
      worker.caller = nullptr;
    }
  return silent_ranks_.size() > before;
}

void Coordinator::form(bool counts) {
  const bool last = counts && std::ranges::all_of(members_, &Worker::last);
  step_ += counts ? 1 : 0;
  const bool voted = id_ > 0;
  std::vector<int> before;
  for (Worker& worker : members_) {
    before.push_back(worker.rank);
    worker.has_state = worker.has_state || counts;
    counted_[static_cast<std::size_t>(worker.rank)] += counts ? 1 : 0;
  }
  const bool lost =
      std::erase_if(members_, [](const Worker& w) { return w.caller == nullptr; }) > 0;
  std::ranges::sort(joiners_, {}, &Worker::rank);
  const bool come = !joiners_.empty();
  for (Worker& worker : joiners_) {
    worker.has_state = step_ == 0;  // all ranks start from the same state
    members_.push_back(std::move(worker));
  }
  joiners_.clear();
  // Moves the members without the state to the end. After a failed step, some of them may still be
  // waiting for the state.
  std::stable_partition(members_.begin(), members_.end(),
                        [](const Worker& w) { return w.has_state; });
  if (lost || come || (voted && !counts)) ++id_;
  over_ = last;
  due_.reset();
  answer_all(counts);
}

void Coordinator::answer_all(bool counts) {
  QuorumAnswer answer{counts, over_, id_, step_, {}, 0};
  for (const Worker& worker : members_) {
    answer.ranks.push_back(worker.rank);
    answer.joining += worker.has_state ? 0 : 1;
  }
  const Reply reply{!failure_.empty(), failure_.empty() ? answer.encode() : failure_};
  for (auto* workers : {&members_, &joiners_})
    for (Worker& worker : *workers) {
      if (worker.caller == nullptr || !worker.waits) continue;
      worker.reply = reply;
      worker.waits = false;
      worker.vote = Vote::none;
    }
  due_.reset();
}

void Coordinator::fail(const std::string& why) {
  failure_ = why;
  answer_all(false);
}

std::string Coordinator::name_missing() const {
  std::vector<int> missing;
  for (int rank = 0; rank < options_.world; ++rank) {
    const auto is = [&](const Worker& w) { return w.caller != nullptr && w.rank == rank; };
    if (std::ranges::none_of(members_, is) && std::ranges::none_of(joiners_, is))
      missing.push_back(rank);
  }
  return list_ranks(missing) + (missing.size() == 1 ? " is" : " are");
}

}  // namespace ringsmith::comm::store
