#include "runtime/comm/failure/flight_file.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "runtime/comm/failure/line.hpp"

namespace ringsmith::comm {

namespace {

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

// strerror() may allocate; these are what happens to folders.
void complain(const char* path, int error) {
  Line line;
  line << "flight recorder '" << path << "' could not be written: ";
  switch (error) {
    case ENOSPC:
      line << "the disk is full";
      break;
    case EDQUOT:
      line << "the quota is used up";
      break;
    case EFBIG:
      line << "files may not be so large (ulimit -f)";
      break;
    case ENOENT:
      line << "its folder has gone";
      break;
    case EACCES:
    case EROFS:
      line << "its folder may not be written to";
      break;
    default:
      line << "error " << long{error} << " (errno)";
  }
  (line << "\n").print();
}

}  // namespace

FlightFile::FlightFile(const std::string& folder, const FlightHeader& whose, const Control* control,
                       const Flight* flight)
    : path_(folder + "/flight-" + whose.group + "-rank" + std::to_string(whose.rank)),
      // Several may write it: survivors the one of a rank that was killed.
      aside_(folder + "/.flight-" + whose.group + "-rank" + std::to_string(whose.rank) + "-by-" +
             std::to_string(whose.written_by) + "-" + std::to_string(getpid())),
      whose_(whose),
      control_(control),
      flight_(flight) {}

bool FlightFile::write(bool replace) const noexcept {
  FlightHeader header = whose_;
  header.monotonic = nanoseconds(CLOCK_MONOTONIC);
  header.wall = nanoseconds(CLOCK_REALTIME);
  const Board& board = control_->board;
  header.sequence = board.sequence.load();
  header.step = board.step.load();
  header.waits_for = board.waits_for.load();
  header.waited = board.waited.load();
  header.busy = board.busy.load();
  const Failure& failure = control_->failure;
  header.kind = failure.kind.load(std::memory_order_acquire);
  header.culprit = failure.culprit.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i + 1 < kFailureText; ++i)
    header.text[i] = failure.text[i].load(std::memory_order_relaxed);
  std::array<iovec, 3> parts{iovec{&header, sizeof header},
                             {const_cast<SiteText*>(control_->sites), sizeof control_->sites},
                             {const_cast<Flight*>(flight_), sizeof *flight_}};
  header.bytes = 0;
  for (const iovec& part : parts) header.bytes += part.iov_len;
  const int file = open(aside_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_TRUNC, 0644);
  bool good = file >= 0;
  for (const iovec& part : parts) good = good && write_all(file, part);
  int error = errno;
  if (file >= 0 && close(file) != 0 && good) {
    good = false;
    error = errno;
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

}  // namespace ringsmith::comm
