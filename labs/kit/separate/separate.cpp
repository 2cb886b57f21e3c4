#include "labs/kit/separate/separate.hpp"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <signal.h>
#include <stdexcept>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "labs/kit/channel.hpp"
#include "labs/kit/outcome.hpp"

namespace kit {
namespace {

constexpr std::uint64_t kEnded = ~std::uint64_t{0};  // in place of a length: work's outcome follows
constexpr std::uint64_t kLongest = std::uint64_t{1} << 26;  // bytes of a message

// Returns false if the other end is closed.
bool send_all(int socket, const void* data, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t now =
        send(socket, static_cast<const char*>(data) + done, bytes - done, MSG_NOSIGNAL);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return false;
    done += std::size_t(now);
  }
  return true;
}
bool receive_all(int socket, void* data, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t now = recv(socket, static_cast<char*>(data) + done, bytes - done, 0);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return false;
    done += std::size_t(now);
  }
  return true;
}
void append(std::vector<std::byte>& to, std::span<const std::byte> message) {
  const std::uint64_t length = message.size();
  const auto head = std::as_bytes(std::span(&length, 1));
  to.insert(to.end(), head.begin(), head.end());
  to.insert(to.end(), message.begin(), message.end());
}

}  // namespace

void Line::write(std::span<const std::byte> message) {
  append(held_, message);
  if (!send_all(socket_, held_.data(), held_.size())) _exit(0);  // the driver has ended the run
  held_.clear();
}

void Line::hold(std::span<const std::byte> message) { append(held_, message); }

std::optional<std::vector<std::byte>> Line::read() {
  std::uint64_t length = 0;
  if (!receive_all(socket_, &length, sizeof length)) return std::nullopt;
  std::vector<std::byte> message(length);
  if (!receive_all(socket_, message.data(), message.size())) return std::nullopt;
  return message;
}

Separate::Separate(std::string name, const std::function<void(Line&)>& work)
    : name_(std::move(name)) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::runtime_error("no socket pair");
  process_ = fork();
  if (process_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    channel::forget();
    close(ends[0]);
    work_and_report(
        ends[1],
        [&](Observation&) {
          Line line(ends[1]);
          work(line);
          return 0;
        },
        [&] { (void)send_all(ends[1], &kEnded, sizeof kEnded); });
  }
  close(ends[1]);
  socket_ = ends[0];
  if (process_ < 0) {
    close(socket_);
    throw std::runtime_error("fork failed");
  }
}

Separate::~Separate() {
  if (socket_ >= 0) close(socket_);
  if (process_ > 0) {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
}

void Separate::write(std::span<const std::byte> message) {
  std::vector<std::byte> whole;
  append(whole, message);
  (void)send_all(socket_, whole.data(), whole.size());  // read() reports a child that has ended
}

std::vector<std::byte> Separate::read() {
  std::uint64_t length = 0;
  if (!receive_all(socket_, &length, sizeof length)) fail();
  if (length == kEnded) {
    Record outcome = Record::decode(channel::read_all(std::exchange(socket_, -1)));
    take_outcome(outcome, name_);
    throw std::runtime_error(name_ + " ended before its work was done");
  }
  if (length > kLongest)
    throw std::runtime_error(name_ + " sends a message of " + std::to_string(length) + " bytes");
  std::vector<std::byte> message(length);
  if (!receive_all(socket_, message.data(), message.size())) fail();
  return message;
}

void Separate::fail() {
  int status = 0;
  waitpid(process_, &status, 0);
  process_ = -1;
  if (WIFSIGNALED(status))
    throw std::runtime_error(name_ + " was killed by " + strsignal(WTERMSIG(status)));
  throw std::runtime_error(name_ + " exited with status " + std::to_string(WEXITSTATUS(status)) +
                           " before its work was done");
}

}  // namespace kit
