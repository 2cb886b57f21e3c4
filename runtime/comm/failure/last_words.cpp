#include "runtime/comm/failure/last_words.hpp"

#include <array>
#include <errno.h>  // program_invocation_short_name
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/atomic_file.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith::comm {

namespace {

std::atomic<const LastWords*> current{nullptr};
// The time at which this rank found the failure itself, in ns. The variable is global, because the
// group may be gone when its error is printed.
std::atomic<std::uint64_t> said_at{0};
constexpr std::uint64_t kTimeToSay = 500'000'000;  // ns; mpirun sends SIGKILL after a second

// The code in this namespace may run in a signal handler, so it must not allocate, lock or use
// stdio.

// A line for standard error; long text is cut.
class LineBuffer {
 public:
  LineBuffer& operator<<(const char* text) {
    while (*text != '\0' && used_ < sizeof bytes_) bytes_[used_++] = *text++;
    return *this;
  }
  LineBuffer& operator<<(long number) {
    char digits[24];
    char* p = digits + sizeof digits - 1;
    *p = '\0';
    do *--p = static_cast<char>('0' + number % 10);
    while ((number /= 10) > 0);
    return *this << p;
  }
  void print() const {
    if (write(STDERR_FILENO, bytes_, used_) < 0) return;  // a failure cannot be reported
  }

 private:
  char bytes_[kFailureText + 256];
  std::size_t used_ = 0;
};

void copy_text(const FailureReport& failure, char* out) {
  std::size_t i = 0;
  for (; i + 1 < kFailureText; ++i) {
    out[i] = failure.text[i].load(std::memory_order_relaxed);
    if (out[i] == '\0') break;
  }
  out[i] = '\0';
}

std::uint64_t nanoseconds(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(t.tv_nsec);
}

bool write_all(int file, const iovec& part) {
  const auto* from = static_cast<const char*>(part.iov_base);
  for (std::size_t left = part.iov_len; left > 0;) {
    const ssize_t n = write(file, from, left);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    from += n;
    left -= static_cast<std::size_t>(n);
  }
  return true;
}

// False if a user has put a link, FIFO or device at this path, which rename() would replace.
bool may_replace(const char* path) {
  struct stat there {};
  return lstat(path, &there) != 0 || S_ISREG(there.st_mode);
}

// Names the usual errors without strerror(), which may allocate.
void complain(const char* path, int error) {
  LineBuffer line;
  line << "flight recorder '" << path << "' could not be written: ";
  switch (error) {
    case ENOSPC:
      line << "the disk is full";
      break;
    case EDQUOT:
      line << "the quota is exhausted";
      break;
    case EFBIG:
      line << "the file is too large (ulimit -f)";
      break;
    case ENOENT:
      line << "its folder no longer exists";
      break;
    case EACCES:
    case EROFS:
      line << "its folder is not writable";
      break;
    case ELOOP:
      line << "its path is not a regular file; remove it";
      break;
    default:
      line << "error " << long{error} << " (errno)";
  }
  (line << "\n").print();
}

}  // namespace

FlightFile::FlightFile(const std::string& folder, const FlightHeader& whose,
                       const RankReport* report, const Flight* flight)
    : path_(folder + "/flight-" + whose.group + "-rank" + std::to_string(whose.rank)),
      // The temporary name contains the writer, because several survivors may write the file of a
      // killed rank.
      aside_(folder + "/.flight-" + whose.group + "-rank" + std::to_string(whose.rank) + "-by-" +
             std::to_string(whose.written_by) + "-" + random_name()),
      whose_(whose),
      report_(report),
      flight_(flight) {}

bool FlightFile::write(bool replace) const noexcept {
  FlightHeader header = whose_;
  header.monotonic = nanoseconds(CLOCK_MONOTONIC);
  header.wall = nanoseconds(CLOCK_REALTIME);
  const Board& board = report_->board;
  header.sequence = board.record.sequence.load();
  header.step = board.step.load();
  header.waits_for = board.waits_for.load();
  header.waited = board.waited.load();
  header.busy = board.busy.load();
  const FailureReport& failure = report_->failure;
  header.kind = failure.kind.load(std::memory_order_acquire);
  header.culprit = failure.culprit.load(std::memory_order_relaxed);
  copy_text(failure, header.text);
  std::array<iovec, 3> parts{iovec{&header, sizeof header},
                             {const_cast<SiteText*>(report_->sites), sizeof report_->sites},
                             {const_cast<Flight*>(flight_), sizeof *flight_}};
  header.bytes = 0;
  for (const iovec& part : parts) header.bytes += part.iov_len;
  unlink(aside_.c_str());  // left by a write that a signal interrupted
  const int file = open(aside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  bool good = file >= 0;
  for (const iovec& part : parts) good = good && write_all(file, part);
  int error = errno;
  if (file >= 0 && close(file) != 0 && good) {
    good = false;
    error = errno;
  }
  if (good && !may_replace(path_.c_str())) {
    good = false;
    error = ELOOP;
  }
  if (good) {
    good = (replace ? rename(aside_.c_str(), path_.c_str())
                    : link(aside_.c_str(), path_.c_str())) == 0;
    error = errno;
  }
  if (file >= 0 && !(good && replace)) unlink(aside_.c_str());
  if (!good && error != EEXIST) complain(path_.c_str(), error);
  return good;
}

namespace {

// True while this rank may be printing its own error. The handler needs this check, because mpirun
// sends SIGTERM more than once.
bool being_said() {
  return said_at.load() != 0 && nanoseconds(CLOCK_MONOTONIC) - said_at.load() < kTimeToSay;
}

void look_around(int signal) {
  if (being_said()) return;
  LastWords::say_if_lost();
  ::signal(signal, SIG_DFL);
  raise(signal);
}

}  // namespace

void LastWords::say_if_lost() noexcept {
  const LastWords* const words = current.load();
  if (words == nullptr || being_said()) return;
  LineBuffer line;
  line << program_invocation_short_name << ": error: ";
  for (const Peer& peer : words->peers_) {
    if (peer.report->failure.kind.load(std::memory_order_acquire) == FailureKind::none) continue;
    char text[kFailureText];
    copy_text(peer.report->failure, text);
    words->write_flights(peer);
    (line << text << " [rank " << words->rank_ << ", reported by rank " << peer.rank << "]\n")
        .print();
    _exit(static_cast<int>(ExitCode::communication));
  }
  for (const Peer& peer : words->peers_) {
    pollfd entry{peer.socket, POLLRDHUP, 0};
    if (poll(&entry, 1, 0) <= 0 || peer.report->board.left.load() != 0) continue;
    words->write_flights(peer);
    (line << "rank " << peer.rank << " (pid " << peer.pid << " on " << peer.host.c_str()
          << ") is gone: " << (peer.remote ? "its connection has closed" : "its process has died")
          << " [rank " << words->rank_ << "]\n")
        .print();
    _exit(static_cast<int>(ExitCode::communication));
  }
}

LastWords::LastWords(int rank, std::vector<Peer> peers) : rank_(rank), peers_(std::move(peers)) {
  const LastWords* expected = nullptr;
  if (!current.compare_exchange_strong(expected, this)) return;  // one group per process is enough
  struct sigaction action {};
  if (sigaction(SIGTERM, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = look_around;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
}

LastWords::~LastWords() {
  const LastWords* expected = this;
  current.compare_exchange_strong(expected, nullptr);
}

void LastWords::write_flights(const Peer& peer) const {
  const auto* const files = flights_.load();
  if (files == nullptr) return;
  (void)(*files)[static_cast<std::size_t>(rank_)].write(true);
  if (!peer.remote) (void)(*files)[static_cast<std::size_t>(peer.rank)].write(false);
}

void LastWords::already_said() { said_at = nanoseconds(CLOCK_MONOTONIC); }

}  // namespace ringsmith::comm
