// Host: failing. What went wrong is said once, here and to the peers, and breaks the group.
#include <algorithm>

#include "runtime/comm/transport/host.hpp"

namespace ringsmith::comm {

Where Host::where(int peer) const {
  const Board& board = mine().board;
  Where where;
  where.rank = rank_;
  name_peer(peer, where);
  if (board.busy.load() == 0) return where;
  where.op = Call::unpack(board.call.load(), board.count.load()).describe();
  where.sequence = static_cast<std::int64_t>(board.sequence.load());
  where.step = board.step.load();
  where.site = text_of(mine().sites, board.site.load());
  return where;
}

void Host::name_peer(int rank, Where& where) const {
  if (rank < 0 || rank == rank_) return;
  where.peer = rank;
  where.peer_host = peer(rank).link.host;
  where.peer_pid = peer(rank).link.pid;
}

std::string Host::at_site(int rank, std::uint64_t site) const {
  const std::string text = text_of(control(rank).sites, site);
  return text.empty() ? "" : " at " + text;
}

void Host::mark_aborted(Site site) {
  const std::lock_guard lock(failing_);
  if (aborted_) return;
  aborted_at_ = site;
  aborted_ = true;
}

void Host::report_aborted() {
  const Trouble trouble = look_for_report();
  record_failure(trouble.kind, trouble.culprit, trouble.text);
}

bool Host::is_usable() const {
  const std::lock_guard lock(failing_);
  return broken_.kind == FailureKind::none;
}

void Host::check_usable() const {
  const std::lock_guard lock(failing_);
  if (broken_.kind == FailureKind::none) return;
  Where where;
  where.rank = rank_;
  name_peer(broken_.culprit, where);
  throw_failure(broken_.kind, "the group is broken since an earlier call failed: " + broken_.text,
                where);
}

void Host::record_failure(FailureKind kind, int culprit, const std::string& text) {
  const std::lock_guard lock(failing_);
  if (broken_.kind != FailureKind::none) return;
  broken_ = {kind, culprit, text};
  if (last_words_) last_words_->already_said();
  Failure& failure = mine().failure;
  const std::size_t length = std::min(text.size(), kFailureText - 1);
  for (std::size_t i = 0; i < length; ++i)
    failure.text[i].store(text[i], std::memory_order_relaxed);
  failure.culprit.store(culprit, std::memory_order_relaxed);
  failure.kind.store(kind, std::memory_order_release);
  for (int r = 0; r < size(); ++r) {
    expose(r, &failure, sizeof failure);
    if (r != rank_ && !on_wire(r)) ring(r);
  }
  if (wires_) {
    wires_->progress();
    wires_->abandon();
  }
  bootstrap_->abandon();
  write_flight(kind == FailureKind::peer_lost ? culprit : -1);
}

void Host::fail(FailureKind kind, int culprit, const std::string& what) {
  const Where place = where(culprit);
  // Reported by a peer, it has been said already.
  const std::string scope = bootstrap_->scope();
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

void Host::keep_flight_in(const std::string& folder) {
  const std::lock_guard lock(failing_);
  if (folder.empty()) return;
  if (last_words_) last_words_->keep_flights(nullptr);
  flight_folder_ = folder;
  flight_files_.clear();
  for (int r = 0; r < size(); ++r) flight_files_.push_back(flight_of(r));
  if (last_words_) last_words_->keep_flights(&flight_files_);
}

// Of this rank, or of one whose memory this rank sees.
FlightFile Host::flight_of(int rank) const {
  FlightHeader whose;
  whose.rank = rank;
  whose.world = size();
  whose.pid = peer(rank).link.pid;
  whose.written_by = rank_;
  peer(rank).link.host.copy(whose.host, sizeof whose.host - 1);
  group_.copy(whose.group, sizeof whose.group - 1);
  const auto* const flight =
      std::launder(reinterpret_cast<const Flight*>(base(rank) + layout_.flight()));
  return {flight_folder_, whose, peer(rank).control, flight};
}

void Host::write_flight(int lost) const {
  if (flight_files_.empty()) return;
  (void)flight_files_[static_cast<std::size_t>(rank_)].write(true);
  if (lost >= 0 && lost != rank_ && !on_wire(lost))
    (void)flight_files_[static_cast<std::size_t>(lost)].write(false);
}

}  // namespace ringsmith::comm
