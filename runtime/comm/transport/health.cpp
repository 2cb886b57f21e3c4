#include "runtime/comm/transport/health.hpp"

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

struct Health::Groups {
  std::mutex mutex;
  std::set<Health*> all;
};
Health::Groups& Health::groups() {
  static auto* const all = new Groups;  // never destroyed: groups may be freed at exit
  return *all;
}

void Health::tell_other_groups(bool waits) {
  std::string text;
  if (waits) {
    Where here = where(-1);
    here.rank = here.step = -1;  // "all_reduce(sum, f32, 10) #3 at train.cpp:12"
    const std::string scope = segments_.bootstrap()->scope();
    text = here.describe() + ' ' + (scope.empty() ? "in the group of all ranks" : scope);
  }
  const std::lock_guard lock(groups().mutex);
  for (Health* const other : groups().all)
    if (other != this && other->made_by_ == made_by_)
      put_text(other->segments_.mine().elsewhere.text, kElsewhereText, text);
}

void Health::set_timeout(std::chrono::milliseconds timeout) { timeout_ = limited(timeout); }

Health::Health(Segments& segments, const GroupOptions& options)
    : segments_(segments),
      timeout_(limited(options.timeout)),
      report_(segments_.mine(), &segments_.flight(rank())),
      group_(short_name(segments_.bootstrap()->scope())) {
  if (segments_.bootstrap()->ends_survivors()) speak_before_the_end();
  keep_flight_in(options.flight_folder);
  const std::lock_guard lock(groups().mutex);
  groups().all.insert(this);
}

Health::~Health() {
  {
    const std::lock_guard lock(groups().mutex);
    groups().all.erase(this);
  }
  segments_.mine().board.left.store(std::uncaught_exceptions() > 0 ? kThrownOut : kInOrder);
  for (int r = 0; r < segments_.size(); ++r)
    if (r != rank() && !segments_.on_network(r)) segments_.ring(r);
  show_board();
}

void Health::speak_before_the_end() {
  std::vector<LastWords::Peer> others;
  for (int r = 0; r < segments_.size(); ++r)
    if (r != rank())
      others.push_back({r, segments_.link(r).pid, segments_.link(r).host, segments_.socket(r),
                        segments_.on_network(r), &segments_.control(r)});
  last_words_ = std::make_unique<LastWords>(rank(), std::move(others));
}

void Health::show_board() {
  if (segments_.all_local()) return;
  // write() copies this many bytes immediately. If it sent them later, they might have changed and
  // not match their checksum.
  constexpr std::size_t kShown = NetworkTransport::kCopied;
  static_assert(offsetof(Board, waited) + sizeof(Board::waited) <= kShown);
  segments_.expose_to_all(&segments_.mine().board, kShown);
  segments_.network()->progress();
}

// Checks all peers, because for_peer may itself wait for the culprit. Reports take precedence,
// because a rank that failed and left has reported which rank is to blame.
Health::Failed Health::look_for_failure(int for_peer) const {
  std::vector<int> gone;
  for (int r = 0; r < segments_.size(); ++r)
    if (segments_.is_gone(r)) gone.push_back(r);
  if (Failed report = look_for_report(); report.kind != FailureKind::none) return report;
  for (const int r : gone) {
    const std::uint32_t left = segments_.control(r).board.left.load();
    if (left != kStays && r != for_peer) continue;  // this rank does not wait for it
    const NetworkTransport* const network = segments_.on_network(r) ? segments_.network() : nullptr;
    if (network && network->damaged(r))
      return {
          FailureKind::other, r,
          "the bytes from " + describe_rank(r) + " to rank " + std::to_string(rank()) + ' ' +
              network->broken(r) +
              ": the network or memory between the ranks corrupts data (ethtool -S and dmesg on "
              "both hosts may show where), or the program wrote to a buffer that was being sent"};
    // The peer may have left before it joined the group, because of another rank.
    const int blamed =
        network ? -1 : overhear_farewell(segments_.socket(r), segments_.link(rank()).word);
    if (blamed >= 0 && blamed < segments_.size() && blamed != rank())
      return {FailureKind::peer_lost, blamed,
              describe_rank(blamed) +
                  " is gone: it left before all ranks were connected, and rank " +
                  std::to_string(r) + " left because of it"};
    const std::string how = left == kInOrder     ? "has left the group"
                            : left == kThrownOut ? "has left the group because of an exception"
                            : network            ? "is gone: " + network->broken(r)
                                                 : "is gone: its process has died";
    return {FailureKind::peer_lost, r, describe_rank(r) + " " + how};
  }
  return {};
}

Health::Failed Health::look_for_report() const {
  if (aborted_.load())
    return {FailureKind::aborted, rank(),
            "rank " + std::to_string(rank()) + " called abort() at " + text_of(aborted_at_)};
  for (int r = 0; r < segments_.size(); ++r) {
    const FailureReport& failure = segments_.control(r).failure;
    const FailureKind kind = failure.kind.load(std::memory_order_acquire);
    if (r == rank() || kind == FailureKind::none) continue;
    return {kind, failure.culprit.load(std::memory_order_relaxed),
            take_text(failure.text, kFailureText)};
  }
  return {};
}

// Returns e.g. "rank 2 (pid 4711 on host-a)".
std::string Health::describe_rank(int rank) const {
  const PeerLink& link = segments_.link(rank);
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(link.pid) + " on " + link.host +
         ")";
}

std::string Health::explain_timeout(int for_peer, int& culprit) const {
  const WaitForGraph graph = see_all();
  std::string text =
      "waited " + std::to_string(timeout().count()) + " ms for rank " + std::to_string(for_peer);
  culprit = graph.culprit_from(for_peer);
  if (culprit < 0) {  // a cycle: each rank waits for the next
    culprit = for_peer;
    return text + ". " + graph.describe();
  }
  text += ". To blame: " + describe_rank(culprit) + ", " + graph.offence_of(culprit);
  if (segments_.link(culprit).same_machine) text += state_of_process(segments_.link(culprit).pid);
  return text + ". " + graph.describe();
}

WaitForGraph Health::see_all() const {
  std::vector<Sight> sights;
  sights.reserve(static_cast<std::size_t>(segments_.size()));
  for (int r = 0; r < segments_.size(); ++r) {
    const Control& control = segments_.control(r);
    const PeerLink& link = segments_.link(r);
    sights.push_back({&control.board, segments_.on_network(r) ? control.answers : nullptr,
                      control.sites, link.same_machine && is_stopped(link.pid),
                      take_text(control.elsewhere.text, kElsewhereText)});
  }
  return WaitForGraph(sights);
}

Where Health::where(int peer) const {
  const Board& board = segments_.mine().board;
  Where where;
  where.rank = rank();
  name_peer(peer, where);
  if (board.busy.load() == 0) return where;
  where.op = board.record.unpacked().describe();
  where.sequence = static_cast<std::int64_t>(board.record.sequence.load());
  where.step = board.step.load();
  where.site = text_of(segments_.mine().sites, board.record.site.load());
  return where;
}

void Health::name_peer(int rank, Where& where) const {
  if (rank < 0 || rank == this->rank()) return;
  where.peer = rank;
  where.peer_host = segments_.link(rank).host;
  where.peer_pid = segments_.link(rank).pid;
}

std::string Health::at_site(int rank, std::uint64_t site) const {
  const std::string text = text_of(segments_.control(rank).sites, site);
  return text.empty() ? "" : " at " + text;
}

void Health::mark_aborted(Site site) {
  const std::lock_guard lock(failing_);
  if (aborted_) return;
  aborted_at_ = site;
  aborted_ = true;
}

void Health::report_aborted() {
  const Failed report = look_for_report();
  record_failure(report.kind, report.culprit, report.text);
}

void Health::refuse() const {
  const std::lock_guard lock(failing_);
  Where where;
  where.rank = rank();
  name_peer(broken_.culprit, where);
  throw_failure(broken_.kind, kBrokenBefore + broken_.text, where);
}

void Health::record_failure(FailureKind kind, int culprit, const std::string& text) {
  const std::lock_guard lock(failing_);
  if (broken_.kind != FailureKind::none) return;
  broken_ = {kind, culprit, text};
  is_broken_.store(true, std::memory_order_release);
  if (last_words_) last_words_->already_said();
  FailureReport& failure = segments_.mine().failure;
  put_text(failure.text, kFailureText, text);
  failure.culprit.store(culprit, std::memory_order_relaxed);
  failure.kind.store(kind, std::memory_order_release);
  for (int r = 0; r < segments_.size(); ++r) {
    segments_.expose(r, &failure, sizeof failure);
    if (r != rank() && !segments_.on_network(r)) segments_.ring(r);
  }
  if (NetworkTransport* const network = segments_.network()) {
    network->progress();
    network->abandon();
  }
  segments_.bootstrap()->abandon();
  write_flight(kind == FailureKind::peer_lost ? culprit : -1);
}

void Health::fail(FailureKind kind, int culprit, const std::string& what) {
  const Where place = where(culprit);
  // A failure that a peer has reported already includes the scope.
  const std::string scope = segments_.bootstrap()->scope();
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

void Health::keep_flight_in(const std::string& folder) {
  const std::lock_guard lock(failing_);
  if (folder.empty()) return;
  if (last_words_) last_words_->keep_flights(nullptr);
  flight_folder_ = folder;
  flight_files_.clear();
  for (int r = 0; r < segments_.size(); ++r) flight_files_.push_back(flight_of(r));
  if (last_words_) last_words_->keep_flights(&flight_files_);
}

// Returns the file of any rank, although this rank never writes the file of a remote rank.
FlightFile Health::flight_of(int rank) const {
  FlightHeader whose;
  whose.rank = rank;
  whose.world = segments_.size();
  whose.pid = segments_.link(rank).pid;
  whose.written_by = this->rank();
  segments_.link(rank).host.copy(whose.host, sizeof whose.host - 1);
  group_.copy(whose.group, sizeof whose.group - 1);
  return {flight_folder_, whose, &segments_.control(rank), &segments_.flight(rank)};
}

void Health::write_flight(int lost) const {
  if (flight_files_.empty()) return;
  (void)flight_files_[static_cast<std::size_t>(this->rank())].write(true);
  if (lost >= 0 && lost != this->rank() && !segments_.on_network(lost))
    (void)flight_files_[static_cast<std::size_t>(lost)].write(false);
}

}  // namespace ringsmith::comm
