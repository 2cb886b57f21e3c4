#include "runtime/comm/transport/peer_failures.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <exception>
#include <set>

#include "runtime/comm/transport/shm/greeting.hpp"

namespace ringsmith::comm {

namespace {

// Turns a scope into a name for files: "world", or "ranks-4-6" for "in the group of ranks 4, 6".
std::string short_name(const std::string& scope) {
  const std::size_t ranks = scope.find("ranks");
  if (ranks == std::string::npos) return "world";
  std::string name;
  for (const char c : scope.substr(ranks))
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      name += c;
    else if (name.back() != '-')
      name += '-';
  return name.substr(0, 60);
}

}  // namespace

// The groups of this process.
struct PeerFailures::Groups {
  std::mutex mutex;
  std::set<PeerFailures*> all;
};
PeerFailures::Groups& PeerFailures::groups() {
  static auto* const all = new Groups;  // also outlives groups that are freed at exit
  return *all;
}

void PeerFailures::tell_other_groups(bool waits) {
  std::string text;
  if (waits) {
    Where here = where(-1);
    here.rank = here.step = -1;  // "all_reduce(sum, f32, 10) #3 at train.cpp:12"
    const std::string scope = bootstrap()->scope();
    text = here.describe() + ' ' + (scope.empty() ? "in the group of all ranks" : scope);
  }
  const std::lock_guard lock(groups().mutex);
  for (PeerFailures* const other : groups().all)
    if (other != this && other->made_by_ == made_by_)
      put_text(other->mine().elsewhere.text, kElsewhereText, text);
}

PeerFailures::PeerFailures(std::shared_ptr<Bootstrap> shared_bootstrap, const GroupOptions& options)
    : PeerMemory(std::move(shared_bootstrap), options),
      timeout_(limited(options.timeout)),
      report_(mine(), std::launder(reinterpret_cast<Flight*>(base(rank()) + layout().flight()))),
      group_(short_name(bootstrap()->scope())) {
  if (bootstrap()->ends_survivors()) speak_before_the_end();
  keep_flight_in(options.flight_folder);
  const std::lock_guard lock(groups().mutex);
  groups().all.insert(this);
}

PeerFailures::~PeerFailures() {
  {
    const std::lock_guard lock(groups().mutex);
    groups().all.erase(this);
  }
  mine().board.left.store(std::uncaught_exceptions() > 0 ? kThrownOut : kInOrder);
  for (int r = 0; r < size(); ++r)
    if (r != rank() && !on_network(r)) ring(r);
  show_board();
}

void PeerFailures::speak_before_the_end() {
  std::vector<LastWords::Peer> others;
  for (int r = 0; r < size(); ++r)
    if (r != rank())
      others.push_back({r, peer(r).link.pid, peer(r).link.host,
                        on_network(r) ? network_->socket(r) : peer(r).link.socket.get(),
                        on_network(r), peer(r).control});
  last_words_ = std::make_unique<LastWords>(rank(), std::move(others));
}

void PeerFailures::show_board() {
  if (!network_) return;
  // write() copies this much immediately. Bytes that change later would not match their checksum.
  constexpr std::size_t kShown = NetworkTransport::kCopied;
  static_assert(offsetof(Board, waited) + sizeof(Board::waited) <= kShown);
  expose_to_all(&mine().board, kShown);
  network_->progress();
}

// Looks at all peers, not only at for_peer, because for_peer may itself wait for the culprit.
// Reports have priority, because a rank that failed and left says which rank is to blame.
PeerFailures::Failed PeerFailures::look_for_failure(int for_peer) const {
  std::vector<int> gone;
  for (int r = 0; r < size(); ++r)
    if (is_gone(r)) gone.push_back(r);
  if (Failed report = look_for_report(); report.kind != FailureKind::none) return report;
  for (const int r : gone) {
    const std::uint32_t left = control(r).board.left.load();
    if (left != kStays && r != for_peer) continue;  // this rank does not wait for it
    if (on_network(r) && network_->damaged(r))
      return {
          FailureKind::other, r,
          "the bytes from " + describe_rank(r) + " to rank " + std::to_string(rank()) + ' ' +
              network_->broken(r) +
              ": the network or memory between the ranks corrupts data (ethtool -S and dmesg on "
              "both hosts may show where), or the program wrote to a buffer that was being sent"};
    // The peer may have left before it joined the group, because of another rank.
    const int blamed =
        on_network(r) ? -1 : overhear_farewell(peer(r).link.socket.get(), peer(rank()).link.word);
    if (blamed >= 0 && blamed < size() && blamed != rank())
      return {FailureKind::peer_lost, blamed,
              describe_rank(blamed) +
                  " is gone: it left before all ranks were connected, and rank " +
                  std::to_string(r) + " left because of it"};
    const std::string how = left == kInOrder     ? "has left the group"
                            : left == kThrownOut ? "has left the group because of an exception"
                            : on_network(r)      ? "is gone: " + network_->broken(r)
                                                 : "is gone: its process has died";
    return {FailureKind::peer_lost, r, describe_rank(r) + " " + how};
  }
  return {};
}

bool PeerFailures::is_gone(int rank) const {
  if (rank == this->rank()) return false;
  return on_network(rank) ? !network_->broken(rank).empty() : hung_up(peer(rank).link.socket);
}

PeerFailures::Failed PeerFailures::look_for_report() const {
  if (aborted_.load())
    return {FailureKind::aborted, rank(),
            "rank " + std::to_string(rank()) + " called abort() at " + text_of(aborted_at_)};
  for (int r = 0; r < size(); ++r) {
    const Failure& failure = control(r).failure;
    const FailureKind kind = failure.kind.load(std::memory_order_acquire);
    if (r == rank() || kind == FailureKind::none) continue;
    return {kind, failure.culprit.load(std::memory_order_relaxed),
            take_text(failure.text, kFailureText)};
  }
  return {};
}

// "rank 2 (pid 4711 on host-a)"
std::string PeerFailures::describe_rank(int rank) const {
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(peer(rank).link.pid) + " on " +
         peer(rank).link.host + ")";
}

std::string PeerFailures::explain_timeout(int for_peer, int& culprit) const {
  const WaitForGraph graph = see_all();
  std::string text =
      "waited " + std::to_string(timeout_.count()) + " ms for rank " + std::to_string(for_peer);
  culprit = graph.culprit_from(for_peer);
  if (culprit < 0) {  // a cycle: each rank waits for the next
    culprit = for_peer;
    return text + ". " + graph.describe();
  }
  text += ". To blame: " + describe_rank(culprit) + ", " + graph.offence_of(culprit);
  if (peer(culprit).link.same_machine) text += state_of_process(peer(culprit).link.pid);
  return text + ". " + graph.describe();
}

WaitForGraph PeerFailures::see_all() const {
  std::vector<Sight> sights;
  sights.reserve(static_cast<std::size_t>(size()));
  for (int r = 0; r < size(); ++r)
    sights.push_back({&control(r).board, on_network(r) ? control(r).answers : nullptr,
                      control(r).sites, peer(r).link.same_machine && is_stopped(peer(r).link.pid),
                      take_text(control(r).elsewhere.text, kElsewhereText)});
  return WaitForGraph(sights);
}

Where PeerFailures::where(int peer) const {
  const Board& board = mine().board;
  Where where;
  where.rank = rank();
  name_peer(peer, where);
  if (board.busy.load() == 0) return where;
  where.op = board.record.unpacked().describe();
  where.sequence = static_cast<std::int64_t>(board.record.sequence.load());
  where.step = board.step.load();
  where.site = text_of(mine().sites, board.record.site.load());
  return where;
}

void PeerFailures::name_peer(int rank, Where& where) const {
  if (rank < 0 || rank == this->rank()) return;
  where.peer = rank;
  where.peer_host = peer(rank).link.host;
  where.peer_pid = peer(rank).link.pid;
}

std::string PeerFailures::at_site(int rank, std::uint64_t site) const {
  const std::string text = text_of(control(rank).sites, site);
  return text.empty() ? "" : " at " + text;
}

void PeerFailures::mark_aborted(Site site) {
  const std::lock_guard lock(failing_);
  if (aborted_) return;
  aborted_at_ = site;
  aborted_ = true;
}

void PeerFailures::report_aborted() {
  const Failed report = look_for_report();
  record_failure(report.kind, report.culprit, report.text);
}

void PeerFailures::refuse() const {
  const std::lock_guard lock(failing_);
  Where where;
  where.rank = rank();
  name_peer(broken_.culprit, where);
  throw_failure(broken_.kind, kBrokenBefore + broken_.text, where);
}

void PeerFailures::record_failure(FailureKind kind, int culprit, const std::string& text) {
  const std::lock_guard lock(failing_);
  if (broken_.kind != FailureKind::none) return;
  broken_ = {kind, culprit, text};
  is_broken_.store(true, std::memory_order_release);
  if (last_words_) last_words_->already_said();
  Failure& failure = mine().failure;
  put_text(failure.text, kFailureText, text);
  failure.culprit.store(culprit, std::memory_order_relaxed);
  failure.kind.store(kind, std::memory_order_release);
  for (int r = 0; r < size(); ++r) {
    expose(r, &failure, sizeof failure);
    if (r != rank() && !on_network(r)) ring(r);
  }
  if (network_) {
    network_->progress();
    network_->abandon();
  }
  bootstrap()->abandon();
  write_flight(kind == FailureKind::peer_lost ? culprit : -1);
}

void PeerFailures::fail(FailureKind kind, int culprit, const std::string& what) {
  const Where place = where(culprit);
  // A failure that a peer has reported already includes the scope.
  const std::string scope = bootstrap()->scope();
  const bool said = scope.empty() || what.find(scope) != std::string::npos;
  const std::string text = said ? what : what + " [" + scope + ']';
  record_failure(kind, culprit, text);
  throw_failure(kind, text, place);
}

void throw_failure(FailureKind kind, const std::string& text, const Where& where) {
  switch (kind) {
    case FailureKind::mismatch:
      throw MismatchError(text, where);
    case FailureKind::timeout:
      throw TimeoutError(text, where);
    case FailureKind::peer_lost:
      throw PeerLost(text, where);
    case FailureKind::aborted:
      throw Aborted(text, where);
    default:
      throw CommError(text, where);
  }
}

void PeerFailures::keep_flight_in(const std::string& folder) {
  const std::lock_guard lock(failing_);
  if (folder.empty()) return;
  if (last_words_) last_words_->keep_flights(nullptr);
  flight_folder_ = folder;
  flight_files_.clear();
  for (int r = 0; r < size(); ++r) flight_files_.push_back(flight_of(r));
  if (last_words_) last_words_->keep_flights(&flight_files_);
}

// Returns the flight recorder file of this rank, or of another rank of this host.
FlightFile PeerFailures::flight_of(int rank) const {
  FlightHeader whose;
  whose.rank = rank;
  whose.world = size();
  whose.pid = peer(rank).link.pid;
  whose.written_by = this->rank();
  peer(rank).link.host.copy(whose.host, sizeof whose.host - 1);
  group_.copy(whose.group, sizeof whose.group - 1);
  const auto* const flight =
      std::launder(reinterpret_cast<const Flight*>(base(rank) + layout().flight()));
  return {flight_folder_, whose, peer(rank).control, flight};
}

void PeerFailures::write_flight(int lost) const {
  if (flight_files_.empty()) return;
  (void)flight_files_[static_cast<std::size_t>(this->rank())].write(true);
  if (lost >= 0 && lost != this->rank() && !on_network(lost))
    (void)flight_files_[static_cast<std::size_t>(lost)].write(false);
}

}  // namespace ringsmith::comm
