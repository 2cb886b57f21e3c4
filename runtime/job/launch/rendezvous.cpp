#include "runtime/job/launch/rendezvous.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <set>
#include <sstream>
#include <thread>

#include "runtime/base/error.hpp"
#include "runtime/job/launch/nodes.hpp"

namespace ringsmith::launch {

namespace {

using std::chrono::milliseconds;

constexpr const char* kRingruns = "meeting/ringruns";
constexpr milliseconds kNow{0};
constexpr milliseconds kPoll{50};            // how often the holder looks for arrivals
constexpr milliseconds kPatience{3'000};     // before a message to the user
constexpr milliseconds kToComeBack{45'000};  // from the end of a round; 2 * grace is added
constexpr milliseconds kToHear{10'000};      // for the others to read the end; 2 * grace is added
constexpr milliseconds kSlack{30'000};       // so that the holder's own deadline passes first
constexpr std::size_t kWord = 8;             // bytes

std::string key(const char* what, std::size_t a) { return fmt::format("meeting/{}/{}", what, a); }
std::string key(const char* what, std::size_t a, int k) {
  return fmt::format("meeting/{}/{}/{}", what, a, k);
}

std::string range(const LaunchOptions& o) {
  return o.least_nodes == o.nodes ? std::to_string(o.nodes)
                                  : fmt::format("{}:{}", o.least_nodes, o.nodes);
}

// A ringrun's record: options that must be the same on all nodes, its node number or -1, and its
// process.
std::string describe_self(const LaunchOptions& o) {
  return fmt::format("{} {} {} {}", range(o), o.max_restarts, o.nodes_numbered ? o.node : -1,
                     process_place());
}

std::string in_seconds(milliseconds time) {
  return fmt::format("{} s", static_cast<double>(time.count()) / 1000);
}

}  // namespace

Rendezvous::Rendezvous(const LaunchOptions& options, const comm::Secret& secret)
    : options_(options), secret_(secret) {
  round_ = {-1, 0, options.node, options.nodes, options.master_port, {}};
  if (options.nodes == 1 || (options.nodes_numbered && options.max_restarts == 0)) return;
  secret_ = secret.derive("job " + options.job);
  const comm::tcp::Address address{options.master_address, options.master_port};
  where_ = "the rendezvous at " + address.str();
  std::string why_not;
  if (!options.nodes_numbered || options.node == 0) {
    try {
      server_ = std::make_unique<comm::StoreServer>(
          secret_,
          comm::StoreServerOptions{.bind = listens_on(options),
                                   .chosen_by = "--bind",
                                   .port = options.master_port,
                                   .max_pending_strangers = options.max_pending_strangers});
    } catch (const UsageError& e) {
      if (options.nodes_numbered || !options.bind.empty()) throw;
      why_not = e.what();  // another host, or another ringrun on this host, holds the rendezvous
    }
  }
  holds_ = server_ != nullptr;
  try {
    store_ =
        std::make_unique<comm::StoreClient>(address, secret_, Deadline::in(options.join_timeout));
  } catch (const comm::NoStore& e) {
    throw TimeoutError(std::string(e.what()) + "; no ringrun holds the rendezvous there" +
                       (why_not.empty() ? "" : ", and this one cannot: " + why_not));
  }
  if (holds_) return;
  number_ = static_cast<int>(store_->add(kRingruns, 1));
  store_->leave_will({key("gone", static_cast<std::size_t>(number_))}, "");
}

Rendezvous::~Rendezvous() {
  close(static_cast<int>(ExitCode::internal), "ringrun on node 0 has stopped");
}

std::optional<Round> Rendezvous::next(Outcome last) {
  if (last == Outcome::well || last == Outcome::stopped) return {};
  if (holds_ && last == Outcome::failed && round_.restarts++ == options_.max_restarts) {
    if (options_.max_restarts > 0)
      fmt::print(stderr, "ringrun: that was restart {} of {}: no more are left\n",
                 options_.max_restarts, options_.max_restarts);
    return {};
  }
  if (!holds_) return ask();
  if (store_) {
    gather();
    round_.port = 0;
    round_.node = 0;
    round_.nodes = static_cast<int>(chosen_.size()) + 1;
  }
  if (store_ || options_.max_restarts > 0)
    round_.word = comm::Secret::random().bytes().substr(0, 2 * kWord);
  ++round_.number;
  return round_;
}

comm::Secret Rendezvous::secret_of(const Round& round) const {
  if (round.word.empty()) return secret_;
  return secret_.derive(fmt::format("round {} {}", round.number, round.word));
}

// Waits until the members of the last round are back, lost or late, and there are enough nodes for
// the next round: the maximum, as many as in the last round, or, after a last call for others, at
// least the minimum.
void Rendezvous::gather() {
  const bool first = round_.number < 0;
  const Deadline join = Deadline::in(options_.join_timeout);
  const Deadline back = Deadline::in(2 * options_.grace + kToComeBack);
  std::optional<Deadline> last_call;
  std::optional<Deadline> patience = Deadline::in(kPatience);
  for (;; std::this_thread::sleep_for(kPoll)) {
    look();
    chosen_.clear();
    for (std::size_t i = 0; i < others_.size(); ++i)
      if (others_[i].waits) chosen_.push_back(i);
    const int here = static_cast<int>(chosen_.size()) + 1;
    const bool coming = std::ranges::any_of(
        others_, [](const Ringrun& r) { return r.member && !r.gone && !r.waits; });
    if (coming && !back.passed()) continue;
    if (here >= options_.nodes || (!first && here >= round_.nodes)) break;
    if (here < options_.least_nodes) {
      last_call.reset();
      if (patience && patience->passed()) {
        patience.reset();
        fmt::print(stderr, "ringrun: waiting for nodes at {}: {} of at least {} are here\n", where_,
                   here, options_.least_nodes);
      }
      if (join.passed()) throw TimeoutError(who_is_missing(here));
      continue;
    }
    if (!last_call) last_call = Deadline::in(options_.last_call);
    if (last_call->passed()) break;
  }
  if (options_.nodes_numbered)
    std::ranges::sort(chosen_, {}, [this](std::size_t i) { return others_[i].node; });
  else
    chosen_.resize(std::min(chosen_.size(), static_cast<std::size_t>(options_.nodes - 1)));
}

std::string Rendezvous::who_is_missing(int here) const {
  std::string missing;
  if (options_.nodes_numbered) {
    for (int node = 1; node < options_.nodes; ++node)
      if (std::ranges::none_of(others_,
                               [&](const Ringrun& r) { return r.waits && r.node == node; }))
        missing += fmt::format("{}node {}", missing.empty() ? ": " : ", ", node);
    missing += round_.number < 0 ? " never arrived" : " did not return";
  } else {
    missing = " (this one, " + process_place();
    for (const Ringrun& r : others_)
      if (r.waits) missing += "; " + r.place;
    missing += ")";
  }
  return fmt::format("{} of at least {} nodes reached {} within {}{}", here, options_.least_nodes,
                     where_, in_seconds(options_.join_timeout), missing);
}

// Reads the other ringruns' new requests and losses.
void Rendezvous::look() {
  others_.resize(static_cast<std::size_t>(store_->add(kRingruns, 0)));
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < others_.size(); ++i) {
    if (others_[i].gone) continue;
    keys.push_back(key("gone", i + 1));
    keys.push_back(key("ready", i + 1, others_[i].asked));
  }
  const auto list = store_->wait(keys, kNow);
  const std::set<std::string> missing(list.begin(), list.end());
  for (std::size_t i = 0; i < others_.size(); ++i) {
    Ringrun& other = others_[i];
    if (other.gone) continue;
    if (missing.count(key("gone", i + 1)) == 0) {
      other.gone = true;
      other.waits = false;
      continue;
    }
    const std::string ready = key("ready", i + 1, other.asked);
    if (!other.waits && missing.count(ready) == 0) judge(other, store_->get(ready, kNow));
  }
}

// Accepts a ringrun that fits the job. If a ringrun in the round has the same node number, the
// request waits: the loss of that ringrun may not have been noticed yet. If another request has the
// number, rejects the new request.
void Rendezvous::judge(Ringrun& other, const std::string& who) {
  std::istringstream in(who);
  std::string nodes, restarts;
  in >> nodes >> restarts >> other.node >> std::ws;
  std::getline(in, other.place);
  if (nodes != range(options_) || restarts != std::to_string(options_.max_restarts))
    return answer(other, fmt::format("no --nnodes {} --max-restarts {} on {}, but --nnodes {} "
                                     "--max-restarts {} on {}: use the same values on all nodes",
                                     nodes, restarts, other.place, range(options_),
                                     options_.max_restarts, process_place()));
  if ((other.node >= 0) != options_.nodes_numbered)
    return answer(other, fmt::format("no --rdzv-backend {} on {}, but {} on {}: use the same "
                                     "value on all nodes",
                                     other.node >= 0 ? "static" : "c10d", other.place,
                                     options_.nodes_numbered ? "static" : "c10d", process_place()));
  for (const Ringrun& r : others_) {
    if (&r == &other || r.gone || other.node < 0 || r.node != other.node) continue;
    if (!r.waits) return;
    return answer(other, fmt::format("no --node-rank {} was given twice: to {} and to {}",
                                     other.node, r.place, other.place));
  }
  other.waits = true;
}

void Rendezvous::answer(Ringrun& other, const std::string& text) {
  const auto a = static_cast<std::size_t>(&other - others_.data()) + 1;
  store_->remove(key("ready", a, other.asked));
  store_->set(key("place", a, other.asked++), text);
  other.waits = false;
}

void Rendezvous::open(const Round& round, std::uint16_t port) {
  if (!store_ || !holds_) return;
  for (Ringrun& other : others_) other.member = false;
  for (std::size_t i = 0; i < chosen_.size(); ++i) {
    Ringrun& other = others_[chosen_[i]];
    other.member = true;
    answer(other, fmt::format("place {} {} {} {} {} {}", round.number, round.restarts, i + 1,
                              round.nodes, port, round.word));
  }
}

std::string Rendezvous::newcomer() {
  look();
  for (const Ringrun& other : others_)
    if (other.waits && !other.member) return "another node has arrived: " + other.place;
  return {};
}

void Rendezvous::close(int exit_code, const std::string& why) {
  if (!store_ || !holds_ || closed_) return;
  closed_ = true;
  try {
    look();
    for (Ringrun& other : others_)
      if (!other.gone) answer(other, fmt::format("end {} {}", exit_code, why));
  } catch (const CommError&) {  // the others will notice that the store is gone
  }
  store_.reset();
  server_->drain(0, 2 * options_.grace + kToHear);
}

std::optional<Round> Rendezvous::ask() {
  const auto a = static_cast<std::size_t>(number_);
  std::string text;
  try {
    const std::string place = key("place", a, asked_);
    store_->set(key("ready", a, asked_++), describe_self(options_));
    if (!store_->wait({place}, kPatience).empty())
      fmt::print(stderr, "ringrun: waiting for a place at {}\n", where_);
    if (store_->wait({place}, options_.join_timeout + kSlack).empty()) {
      text = store_->get(place, kNow);
      store_->remove(place);
    }
  } catch (const CommError&) {
    throw CommError("the ringrun that holds " + where_ + " is lost, and the job with it");
  }
  if (text.empty())
    throw TimeoutError(where_ + " had no place for this node within " +
                       in_seconds(options_.join_timeout + kSlack) + ": the job has all its " +
                       std::to_string(options_.nodes) + " nodes");
  std::istringstream in(text);
  std::string kind;
  in >> kind;
  if (kind == "place") {
    in >> round_.number >> round_.restarts >> round_.node >> round_.nodes >> round_.port >>
        round_.word;
    if (in) return round_;
    throw CommError(where_ + " assigned an invalid place: use the same ringrun on all nodes");
  }
  if (kind == "end") in >> exit_code_;
  std::getline(in >> std::ws, text);
  if (kind != "end") throw MismatchError(text);
  fmt::print(stderr, "ringrun: the job is over: {}\n", text);
  return {};
}

}  // namespace ringsmith::launch
