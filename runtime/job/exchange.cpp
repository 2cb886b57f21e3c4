#include "runtime/job/exchange.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "runtime/base/process.hpp"
#include "runtime/comm/failure/wait_for_graph.hpp"
#include "runtime/job/bootstrap.hpp"
#include "runtime/job/store/client.hpp"
#include "runtime/job/store/server.hpp"

namespace ringsmith::comm {

namespace {

constexpr std::chrono::milliseconds kBetweenLooks{100};  // between checks for lost members
constexpr std::chrono::milliseconds kTimeToRead{2000};   // for the others to read an error
constexpr std::size_t kBlock = 32;                       // records, of up to 4 KiB each, per value

// A result is kDone or a verdict: the kind of error, the culprit's index, a blank, the text.
constexpr const char* kDone = "done";
enum VerdictKind : char { mismatch = 'M', lost = 'L', late = 'T' };

std::string verdict(VerdictKind kind, int culprit, const std::string& text) {
  return static_cast<char>(kind) + std::to_string(culprit) + " " + text;
}
int culprit_of(const std::string& verdict) { return std::atoi(verdict.c_str() + 1); }
std::string verdict_text(const std::string& verdict) {
  return verdict.substr(verdict.find(' ') + 1);
}

// Appends a random number, which makes the place unique even among the threads of one process.
// Messages omit it.
std::string unique(const std::string& place) {
  return place + " #" + std::to_string(store::read_number(random_bytes(8)));
}
std::string shown(const std::string& owner) { return owner.substr(0, owner.rfind(" #")); }

// Returns the pid in a place such as "pid 4711 on host a" if it is on this host, or else 0.
pid_t pid_here(const std::string& place) {
  const std::size_t on = place.find(" on ");
  return on != std::string::npos && place.substr(on + 4) == host_name()
             ? std::atoi(place.c_str() + std::string_view("pid ").size())
             : 0;
}
std::string state_at(const std::string& place) {
  const pid_t pid = pid_here(place);
  return pid > 0 ? state_of_process(pid) : "";
}
bool is_stopped_at(const std::string& place) {
  const pid_t pid = pid_here(place);
  return pid > 0 && is_stopped(pid);
}

std::string explain(NoStore::How how, bool launcher_holds_store) {
  const std::string holder = launcher_holds_store ? "the launcher" : "rank 0";
  if (how == NoStore::How::silent)
    return holder +
           ", which holds it, is reachable but has not answered in time: it may be stopped, "
           "or strangers may be flooding its port";
  if (!launcher_holds_store)
    return "rank 0, which holds it, never started, or is not at that address";
  if (how == NoStore::How::refused) return "the launcher that holds it has ended";
  return "the launcher that holds it cannot be reached, or is too busy to answer";
}

std::shared_ptr<Store> reach(const JobPlace& place, const tcp::Address& address,
                             const Secret& secret, std::chrono::milliseconds timeout) {
  StoreClientOptions options;
  options.holder = place.launcher_holds_store ? "" : ", which rank 0 holds,";
  options.door = store::find_door(place.door.c_str());
  try {
    return std::make_shared<StoreClient>(address, secret, Deadline::in(timeout), options);
  } catch (const NoStore& e) {
    throw TimeoutError(std::string(e.what()) + "; " + explain(e.how(), place.launcher_holds_store),
                       {.rank = place.rank, .peer = place.launcher_holds_store ? -1 : 0, .op = {}});
  }
}

}  // namespace

void declare_lost(Store& store, const Membership& members, int index, const std::string& text) {
  const LossNote note = note_loss(members.prefix, 0, index, text);
  store.compare_and_swap(note.key, "", note.value);
}

LossNote note_loss(const std::string& prefix, int round, int index, const std::string& text) {
  return {prefix + "/" + std::to_string(round) + "/result", verdict(lost, index, text)};
}

Exchange::Exchange(std::shared_ptr<Store> store, Membership me)
    : store_(std::move(store)), me_(std::move(me)) {
  const std::string place = process_place();
  self_ = me_.noun + " " + std::to_string(me_.index) + " (" + place + ")";
  const std::string size = std::to_string(me_.size);
  const std::string first =
      store_->compare_and_swap(me_.prefix + "/size", "", size + " for " + self_);
  if (first.compare(0, size.size() + 1, size + " ") != 0)
    fail(verdict(mismatch, me_.index,
                 "the " + me_.noun + "s disagree: " + me_.size_name + " is " + size + " for " +
                     self_ + ", but " + first));
  const std::string mine = unique(place);
  const std::string owner = store_->compare_and_swap(member_key(me_.index), "", mine);
  if (owner != mine)
    fail(verdict(mismatch, me_.index,
                 me_.noun + " " + std::to_string(me_.index) + " was given twice: to " +
                     shown(owner) + " and to " + place +
                     "; or an earlier job's store still uses this port"));
  leave_will();
}

std::string Exchange::key(const std::string& name, int rounds_on) const {
  return me_.prefix + "/" + std::to_string(round_ + rounds_on) + "/" + name;
}

std::string Exchange::member_key(int index) const {
  return me_.prefix + "/member/" + std::to_string(index);
}

// The will applies to the next exchange or, if that is complete when this member ends, to the one
// after it.
void Exchange::leave_will() {
  store_->leave_will(
      {key("result"), key("result", 1)},
      verdict(lost, me_.index, self_ + " ended before all " + me_.noun + "s had found each other"));
}

std::vector<std::string> Exchange::all_gather(const std::string& record) {
  check_record(record);
  store_->set(key("from/" + std::to_string(me_.index)), record);
  if (store_->add(key("arrived"), 1) == me_.size) collect();
  std::string result;
  try {
    result = store_->get(key("result"), me_.timeout);
  } catch (const TimeoutError&) {
    int first = -1;
    const std::string text = describe_missing(first);
    fail(verdict(late, first, text));
  }
  if (result != kDone) fail(result);
  std::vector<std::string> records;
  const auto size = static_cast<std::size_t>(me_.size);
  for (std::size_t b = 0; b * kBlock < size; ++b) {
    auto block = store::Message::decode(
        store_->get(key("block/" + std::to_string(b)), std::chrono::milliseconds(0)));
    for (std::string& text : block.texts) records.push_back(std::move(text));
  }
  if (records.size() != size) throw CommError(store_->name() + ": the exchange is incomplete");
  const std::string read = key("read"), over = key("over");
  ++round_;
  leave_will();
  if (store_->add(read, 1) != me_.size) return records;
  forget(round_ - 2);
  // This must be the last write: the store may be destroyed as soon as the key exists.
  store_->set(over, "");
  return records;
}

// Removes the keys of a round, which no member needs once all members have read the next round's
// result. Otherwise a job that creates groups for days would fill the store.
void Exchange::forget(int round) {
  if (round < 0) return;
  const int ago = round - round_;
  for (const char* name : {"arrived", "collector", "result", "read", "over"})
    store_->remove(key(name, ago));
  for (std::size_t b = 0; b * kBlock < static_cast<std::size_t>(me_.size); ++b)
    store_->remove(key("block/" + std::to_string(b), ago));
}

// Called by the last member to arrive, when all records are there.
void Exchange::collect() {
  store_->set(key("collector"), std::to_string(me_.index));  // used by describe_missing()
  const auto size = static_cast<std::size_t>(me_.size);
  for (std::size_t b = 0; b * kBlock < size; ++b) {
    store::Message block;
    for (std::size_t r = b * kBlock; r < std::min(size, (b + 1) * kBlock); ++r) {
      const std::string name = key("from/" + std::to_string(r));
      block.texts.push_back(store_->get(name, std::chrono::milliseconds(0)));
      store_->remove(name);
    }
    store_->set(key("block/" + std::to_string(b)), block.encode());
  }
  store_->compare_and_swap(key("result"), "", kDone);
}

void Exchange::await_readers() {
  if (round_ == 0) return;
  Deadline deadline = Deadline::in(me_.timeout);
  for (bool lost = false; !deadline.passed();) {
    if (store_->wait({key("over", -1)}, deadline.at_most(kBetweenLooks).left()).empty()) return;
    if (lost || !lost_member()) continue;
    lost = true;  // the lost member will not read, but the others must
    deadline = deadline.at_most(kTimeToRead);
  }
}

std::optional<LostMember> Exchange::lost_member() {
  if (!store_->wait({key("result")}, std::chrono::milliseconds(0)).empty()) return {};
  const std::string found = store_->get(key("result"), std::chrono::milliseconds(0));
  if (found.empty() || found[0] != lost) return {};
  const int index = culprit_of(found);
  if (index < 0 || index >= me_.size) return {};
  return LostMember{index, verdict_text(found)};
}

std::string Exchange::describe_missing(int& first) {
  using std::chrono::milliseconds;
  const auto is_there = [this](const std::string& name) {
    return store_->wait({name}, milliseconds(0)).empty();
  };
  const auto describe = [&](int r, const std::string& did) {
    const std::string place = shown(store_->get(member_key(r), milliseconds(0)));
    return me_.noun + " " + std::to_string(r) + " (" + place + ") " + did + state_at(place);
  };
  std::string text;
  const auto blame = [&](int r, const std::string& what) {
    if (first < 0) first = r;
    text += (text.empty() ? "" : "; ") + what;
  };
  for (int r = 0; r < me_.size; ++r)
    if (!is_there(member_key(r)))
      blame(r, me_.noun + " " + std::to_string(r) + " never arrived");
    else if (store_->add(key("arrived"), 0) < me_.size &&
             !is_there(key("from/" + std::to_string(r))))
      blame(r, describe(r, "arrived, but got no further"));
  if (text.empty() && is_there(key("collector"))) {
    const int collector = std::stoi(store_->get(key("collector"), milliseconds(0)));
    blame(collector, describe(collector, "has all records, but has not sent them"));
  }
  // Every record is there, so a member was stopped before it counted its record, or the last member
  // before it announced itself as the collector.
  for (int r = 0; r < me_.size && text.empty(); ++r)
    if (r != me_.index && is_stopped_at(shown(store_->get(member_key(r), milliseconds(0)))))
      blame(r, describe(r, "arrived, but got no further"));
  if (text.empty())
    text = "all " + std::to_string(me_.size) + " have sent their records, but one of them hangs";
  return self_ + " has waited " + std::to_string(me_.timeout.count()) +
         " ms for the others: " + text;
}

// Publishes the verdict and throws its error. The first verdict of a round wins; a completed round
// keeps its result.
void Exchange::fail(const std::string& mine) {
  const std::string found = store_->compare_and_swap(key("result"), "", mine);
  const std::string& holds = found == kDone ? mine : found;
  Where where;
  if (me_.noun == "rank") {
    where.rank = me_.index;
    where.peer = culprit_of(holds);
    if (where.peer == where.rank) where.peer = -1;
  }
  const std::string text = verdict_text(holds);
  switch (holds.empty() ? '\0' : holds[0]) {
    case mismatch:
      throw MismatchError(text, where);
    case lost:
      throw PeerLost(text, where);
    case late:
      throw TimeoutError(text, where);
    default:
      throw CommError(text, where);
  }
}

StoreBootstrap::StoreBootstrap(const JobPlace& place, const Secret& secret,
                               std::chrono::milliseconds timeout)
    : place_(place) {
  const bool holds_store = place.rank == 0 && !place.launcher_holds_store;
  tcp::Address address = place.store;
  if (holds_store) {
    server_ = std::make_unique<StoreServer>(
        secret, StoreServerOptions{
                    .bind = place.bind, .chosen_by = "RINGSMITH_BIND", .port = place.store.port});
    address.port = server_->port();
  }
  try {
    const std::shared_ptr<Store> store = reach(place, address, secret, timeout);
    Membership me{.index = place.rank, .size = place.world, .timeout = timeout};
    if (place.kind == BootstrapKind::slurm) me.size_name = "SLURM_STEP_NUM_TASKS";
    exchange_ = std::make_unique<Exchange>(store, me);
  } catch (const CommError&) {
    let_others_read();
    throw;
  }
}

StoreBootstrap::~StoreBootstrap() = default;

std::vector<std::string> StoreBootstrap::all_gather(const std::string& record) {
  try {
    auto records = exchange_->all_gather(record);
    // The other ranks read their results from this rank's store.
    if (server_) exchange_->await_readers();
    return records;
  } catch (const PeerLost&) {
    let_others_read(place_.world);  // else a late rank would find no store and blame this rank
    throw;
  } catch (const CommError&) {
    let_others_read();
    throw;
  }
}

std::optional<LostMember> StoreBootstrap::lost_rank() {
  try {
    return exchange_->lost_member();
  } catch (const CommError&) {
    return {};  // the store is gone; the peers' own connections report failures
  }
}

// After an error, keeps this rank's store alive for up to kTimeToRead, so that the other ranks can
// read the error. The store ends earlier once `expected` ranks have connected and have left again.
void StoreBootstrap::let_others_read(int expected) {
  if (server_) server_->drain(exchange_ ? 1 : 0, kTimeToRead, static_cast<std::size_t>(expected));
}

}  // namespace ringsmith::comm
