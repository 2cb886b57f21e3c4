#include "runtime/comm/transport/host.hpp"

#include <algorithm>
#include <climits>
#include <linux/futex.h>
#include <new>
#include <sched.h>
#include <sys/syscall.h>
#include <thread>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "runtime/comm/transport/wait_for_graph.hpp"

namespace ringsmith::comm {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr milliseconds kCheckInterval{2};  // between two looks at the peers' health while waiting
constexpr std::size_t kPage = 4096;        // bytes
constexpr int kMostRanks = 64;             // sources of one reduction

// Ranks that share cores yield to each other within microseconds. A yield that takes longer has
// given the core to a program that does not wait for us: then sleeping is better, because who
// sleeps is run soon after being woken, and who yields goes to the end of the line.
constexpr microseconds kSlowYield{500};
constexpr int kWaitsWithoutYield = 256;  // then yielding gets another try

constexpr std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr std::size_t kWindowsAt = round_up(sizeof(Control), kPage);
constexpr std::size_t kLanesAt = kWindowsAt + 2 * Host::kWindow;
constexpr std::size_t kLaneSlots = kSlots * kSlotBytes;

// A segment: control | two windows | a Lane for each peer and FIFO | their slots | arena
std::size_t slots_at(int world) {
  return round_up(kLanesAt + static_cast<std::size_t>(world) * kLanes * sizeof(Lane), kPage);
}
std::size_t arena_at(int world) {
  return slots_at(world) + static_cast<std::size_t>(world) * kLanes * kLaneSlots;
}

// Address space for communication memory: as much as the machine has. Only what is used counts.
std::size_t arena_size() {
  constexpr std::size_t kMost = std::size_t{256} << 30;
  const auto memory = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * kPage;
  return std::clamp(memory, std::size_t{1} << 30, kMost);
}

// More ranks than CPUs that they may run on together.
bool oversubscribed(const std::vector<PeerLink>& links) {
  std::string any;
  for (const PeerLink& link : links) {
    any.resize(std::max(any.size(), link.cpus.size()), '0');
    for (std::size_t c = 0; c < link.cpus.size(); ++c)
      if (link.cpus[c] == '1') any[c] = '1';
  }
  return static_cast<std::size_t>(std::count(any.begin(), any.end(), '1')) < links.size();
}

}  // namespace

void Host::pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

Host::Host(std::shared_ptr<Bootstrap> bootstrap, const GroupOptions& options)
    : bootstrap_(std::move(bootstrap)), rank_(bootstrap_->rank()), timeout_(options.timeout) {
  const int world = bootstrap_->size();
  require(world <= kMostRanks, std::to_string(world) + " ranks on one host: at most " +
                                   std::to_string(kMostRanks) + " are supported");
  auto segment = Segment::create(Bytes(arena_at(world) + arena_size()));
  segment->commit(Bytes(0), Bytes(arena_at(world)));
  new (segment->data()) Control;
  for (int i = 0; i < world * kLanes; ++i)
    new (segment->data() + kLanesAt + static_cast<std::size_t>(i) * sizeof(Lane)) Lane;
  arena_ = std::make_shared<Arena>(segment, Bytes(arena_at(world)));
  auto links = connect_mesh(*bootstrap_, segment->file(), timeout_);
  // Spinning is for ranks that have a core each.
  foreground_ =
      oversubscribed(links) ? Patience{0, microseconds(1000)} : Patience{4000, microseconds(2000)};
  background_ = {0, microseconds(50)};
  for (std::size_t r = 0; r < links.size(); ++r) {
    Peer p;
    p.link = std::move(links[r]);
    p.segment = static_cast<int>(r) == rank_ ? segment : Segment::open(std::move(p.link.memory));
    p.control = std::launder(reinterpret_cast<Control*>(p.segment->data()));
    peers_.push_back(std::move(p));
  }
  if (!bootstrap_->ends_survivors()) return;
  std::vector<LastWords::Peer> others;
  for (int r = 0; r < world; ++r)
    if (r != rank_)
      others.push_back({r, peer(r).link.pid, peer(r).link.socket.get(), peer(r).control});
  last_words_ = std::make_unique<LastWords>(rank_, std::move(others));
}

Host::~Host() {
  mine().board.left.store(1);
  for (int r = 0; r < size(); ++r)
    if (r != rank_) ring(r);
}

std::byte* Host::window(int rank, std::uint64_t round) const {
  return base(rank) + kWindowsAt + (round % 2) * kWindow;
}

Lane& Host::lane(int rank, int peer, int index) const {
  const auto i = static_cast<std::size_t>(peer) * kLanes + static_cast<std::size_t>(index);
  return *std::launder(reinterpret_cast<Lane*>(base(rank) + kLanesAt) + i);
}

std::byte* Host::slots(int rank, int peer, int index) const {
  const auto i = static_cast<std::size_t>(peer) * kLanes + static_cast<std::size_t>(index);
  return base(rank) + slots_at(size()) + i * kLaneSlots;
}

void Host::enter(const Call& call, std::uint64_t sequence) {
  Board& board = mine().board;
  board.call.store(call.pack(), std::memory_order_relaxed);
  board.count.store(call.count, std::memory_order_relaxed);
  board.sequence.store(sequence, std::memory_order_relaxed);
  board.step.store(-1, std::memory_order_relaxed);
  board.busy.store(1, std::memory_order_relaxed);
}

void Host::leave() { mine().board.busy.store(0, std::memory_order_relaxed); }

Where Host::where(int peer) const {
  const Board& board = mine().board;
  Where where;
  where.rank = rank_;
  where.peer = peer;
  if (board.busy.load() == 0) return where;
  where.op = Call::unpack(board.call.load(), board.count.load()).describe();
  where.sequence = static_cast<std::int64_t>(board.sequence.load());
  where.step = board.step.load();
  return where;
}

void Host::ring(int rank) {
  Doorbell& bell = control(rank).bell;
  bell.rings.fetch_add(1);
  syscall(SYS_futex, &bell.rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Host::wait_long(const int& for_peer, bool (*ready)(void*), void* context) {
  Control& me = mine();
  if (crowded_ > 0) --crowded_;
  const auto start = Clock::now();
  auto next_check = start + kCheckInterval;
  while (!ready(context)) {
    me.board.waits_for.store(for_peer, std::memory_order_relaxed);
    const auto now = Clock::now();
    if (now >= next_check) {
      Trouble trouble = look_for_trouble(for_peer);
      if (trouble.kind == FailureKind::none && now - start >= timeout_)
        trouble = {FailureKind::timeout, for_peer,
                   "waited " + std::to_string(timeout_.count()) + " ms for rank " +
                       std::to_string(for_peer) + ". " + wait_for_graph()};
      // Looked at after the trouble was seen: a peer may have done its part and then left.
      if (ready(context)) break;
      if (trouble.kind != FailureKind::none) fail(trouble.kind, trouble.culprit, trouble.text);
      next_check = now + kCheckInterval;
    }
    if (crowded_ == 0 && now - start < patience().yielding) {
      sched_yield();
      if (Clock::now() - now > kSlowYield) crowded_ = kWaitsWithoutYield;
      continue;
    }
    const std::uint32_t seen = me.bell.rings.load();
    me.bell.sleeping.store(1);
    if (!ready(context)) {
      const timespec limit{0, std::chrono::nanoseconds(kCheckInterval).count()};
      syscall(SYS_futex, &me.bell.rings, FUTEX_WAIT, seen, &limit, nullptr, 0);
    }
    me.bell.sleeping.store(0);
  }
  me.board.waits_for.store(-1, std::memory_order_relaxed);
}

// Looks at all peers, not only at the one waited for: that one may itself wait for the culprit.
// Reports come first: a rank that failed and left tells whose fault it was.
Host::Trouble Host::look_for_trouble(int for_peer) const {
  std::vector<int> gone;
  for (int r = 0; r < size(); ++r)
    if (is_gone(r)) gone.push_back(r);
  if (Trouble trouble = look_for_report(); trouble.kind != FailureKind::none) return trouble;
  for (const int r : gone) {
    const bool in_order = control(r).board.left.load() != 0;
    if (in_order && r != for_peer) continue;  // it had done its part
    return {FailureKind::peer_lost, r,
            "rank " + std::to_string(r) + " (pid " + std::to_string(peer(r).link.pid) + ") " +
                (in_order ? "has left the group" : "is gone: its process has died")};
  }
  return {};
}

Host::Trouble Host::look_for_report() const {
  for (int r = 0; r < size(); ++r) {
    const Failure& failure = control(r).failure;
    const FailureKind kind = failure.kind.load(std::memory_order_acquire);
    if (r == rank_ || kind == FailureKind::none) continue;
    Trouble trouble{kind, failure.culprit.load(std::memory_order_relaxed), ""};
    for (const auto& c : failure.text) {
      const char letter = c.load(std::memory_order_relaxed);
      if (letter == '\0') break;
      trouble.text += letter;
    }
    return trouble;
  }
  return {};
}

std::string Host::wait_for_graph() const {
  std::vector<const Board*> boards;
  for (int r = 0; r < size(); ++r) boards.push_back(&control(r).board);
  return comm::wait_for_graph(boards);
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
  where.peer = broken_.culprit;
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
  for (int r = 0; r < size(); ++r)
    if (r != rank_) ring(r);
  bootstrap_->abandon();
}

void Host::fail(FailureKind kind, int culprit, const std::string& text) {
  const Where place = where(culprit);
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
    default:
      throw CommError(text, where);
  }
}

}  // namespace ringsmith::comm
