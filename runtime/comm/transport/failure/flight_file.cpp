#include "runtime/comm/transport/failure/flight_file.hpp"

#include <array>
#include <fcntl.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

namespace ringsmith::comm {

namespace {

std::uint64_t nanoseconds(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(t.tv_nsec);
}

}  // namespace

FlightFile::FlightFile(const std::string& folder, const FlightHeader& whose, const Control* control,
                       const Flight* flight)
    : path_(folder + "/flight-" + whose.group + "-rank" + std::to_string(whose.rank)),
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
  const int file =
      open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (replace ? O_TRUNC : O_EXCL), 0644);
  if (file < 0) return false;
  std::array<iovec, 3> parts{iovec{&header, sizeof header},
                             {const_cast<SiteText*>(control_->sites), sizeof control_->sites},
                             {const_cast<Flight*>(flight_), sizeof *flight_}};
  header.bytes = 0;
  for (const iovec& part : parts) header.bytes += part.iov_len;
  const ssize_t wrote = writev(file, parts.data(), static_cast<int>(parts.size()));
  close(file);
  return wrote == static_cast<ssize_t>(header.bytes);
}

}  // namespace ringsmith::comm
