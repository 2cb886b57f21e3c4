#include "runtime/job/launch/output.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <iterator>
#include <optional>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/base/error.hpp"

namespace ringsmith::launch {

namespace {

constexpr std::size_t kReadAtOnce = std::size_t{1} << 16;  // bytes
constexpr std::size_t kMostTailLine = 1000;                // bytes; the report is for a screen

// Returns false on a write error, e.g. EPIPE if the reader has gone.
bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {  // a process made the terminal non-blocking
      pollfd entry{fd, POLLOUT, 0};
      poll(&entry, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

// Prints nothing for EPIPE: the reader closed its end on purpose.
void complain(int error, const std::string& what, const char* then) {
  if (error == EPIPE) return;
  write_all(STDERR_FILENO, "ringrun: error: cannot write " + what + ": " + std::strerror(error) +
                               "; " + then + "\n");
}

}  // namespace

Output::Output(OutputOptions options, int closed)
    : options_(std::move(options)),
      closed_(closed),
      stop_(eventfd(0, EFD_CLOEXEC)),
      done_(eventfd(0, EFD_CLOEXEC)),
      added_(eventfd(0, EFD_CLOEXEC)) {}

Output::~Output() {
  if (!thread_.joinable()) return;
  stop_at(Deadline::in(std::chrono::milliseconds(0)));
  thread_.join();
}

std::string Output::log_of(int rank) const {
  if (options_.log_folder.empty()) return {};
  return options_.log_folder + "/rank-" + std::to_string(rank) + ".{out,err}";
}

void Output::add(int rank, Descriptor out, Descriptor err) {
  for (Descriptor* from : {&out, &err}) {
    RankStream s;
    s.rank = rank;
    s.is_error = from == &err;
    s.from = std::move(*from);
    if (!options_.log_folder.empty()) {
      const std::string path =
          options_.log_folder + "/rank-" + std::to_string(rank) + (s.is_error ? ".err" : ".out");
      const int how = thread_.joinable() ? O_APPEND : O_CREAT | O_EXCL;
      s.file = Descriptor(open(path.c_str(), O_WRONLY | how | O_NOFOLLOW | O_CLOEXEC, 0644));
      require(s.file.valid(), "cannot write '" + path + "': " + std::strerror(errno));
    }
    const std::lock_guard lock(mutex_);
    tails_[rank];
    (thread_.joinable() ? new_streams_ : streams_).push_back(std::move(s));
  }
  if (thread_.joinable()) eventfd_write(added_.get(), 1);
}

void Output::start() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { gather(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Output::stop_at(Deadline deadline) {
  stop_ms_ = deadline.left().count();
  eventfd_write(stop_.get(), 1);
}

std::vector<std::string> Output::tail(int rank) const {
  const std::lock_guard lock(mutex_);
  const auto lines = tails_.find(rank);
  if (lines == tails_.end()) return {};
  return {lines->second.begin(), lines->second.end()};
}

void Output::gather() {
  std::vector<pollfd> entries;
  std::array<char, kReadAtOnce> block{};
  std::optional<Deadline> deadline;
  const auto open = [](const RankStream& s) { return s.from.valid(); };
  while ((std::ranges::any_of(streams_, open) || (options_.more_ranks && !deadline)) &&
         !(deadline && deadline->passed())) {
    entries.assign({{deadline ? -1 : stop_.get(), POLLIN, 0}, {added_.get(), POLLIN, 0}});
    for (const RankStream& s : streams_) entries.push_back({s.from.get(), POLLIN, 0});
    poll(entries.data(), entries.size(), deadline ? deadline->poll_ms() : -1);
    if (entries[0].revents != 0) deadline = Deadline::in(std::chrono::milliseconds(stop_ms_));
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      if (entries[i + 2].revents == 0) continue;
      const ssize_t n = read(streams_[i].from.get(), block.data(), block.size());
      if (n < 0 && errno == EINTR) continue;
      take(streams_[i], {block.data(), n > 0 ? static_cast<std::size_t>(n) : 0});
      if (n <= 0) streams_[i].from = Descriptor();
    }
    if (entries[1].revents != 0) take_new_streams();
  }
  for (RankStream& s : streams_)
    if (s.from.valid()) take(s, {});
  eventfd_write(done_.get(), 1);
}

void Output::take_new_streams() {
  eventfd_t unused = 0;
  eventfd_read(added_.get(), &unused);
  std::erase_if(streams_, [](const RankStream& s) { return !s.from.valid(); });
  const std::lock_guard lock(mutex_);
  std::ranges::move(new_streams_, std::back_inserter(streams_));
  new_streams_.clear();
}

void Output::take(RankStream& s, std::string_view bytes) {
  if (s.file.valid() && !write_all(s.file.get(), bytes)) {
    complain(
        errno,
        "rank " + std::to_string(s.rank) + "'s file in --log-dir '" + options_.log_folder + "'",
        "the rest of that output is lost");
    s.file = Descriptor();
    lost_ = true;
  }
  std::string shown;
  if (!options_.prefix) shown = bytes;
  if (bytes.empty() && (!s.line.empty() || s.returned)) take_piece(s, {}, '\n', shown);
  while (!bytes.empty()) {
    const std::size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size());
    take_piece(s, bytes.substr(0, end), end < bytes.size() ? bytes[end] : '\0', shown);
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
  }
  if (!options_.show || shown.empty()) return;
  if (write_all(s.is_error ? STDERR_FILENO : STDOUT_FILENO, shown)) return;
  complain(errno, s.is_error ? "to standard error" : "to standard output", "all ranks are ended");
  options_.show = false;
  eventfd_write(closed_, 1);
}

// Handles a piece of a line and the character that ends it; '\0': the line continues. Complete
// pieces are shown with the rank in front; complete lines are also kept for the report.
void Output::take_piece(RankStream& s, std::string_view piece, char end, std::string& shown) {
  const bool only_ends = s.returned && piece.empty() && end == '\n';  // "\r\n"
  if (s.returned && !only_ends && !(piece.empty() && end == '\0')) {
    s.line.clear();
    s.returned = false;
  }
  s.line += piece;
  if (end == '\0' && s.line.size() >= kMostLine) end = '\n';
  if (end == '\0') return;
  if (options_.prefix && !only_ends) shown += "[" + std::to_string(s.rank) + "] " + s.line;
  if (options_.prefix) shown += end;
  s.returned = end == '\r';
  if (s.returned) return;
  const std::lock_guard lock(mutex_);
  std::deque<std::string>& lines = tails_[s.rank];
  lines.push_back(s.line.substr(0, kMostTailLine));
  if (lines.size() > kTail) lines.pop_front();
  s.line.clear();
}

}  // namespace ringsmith::launch
