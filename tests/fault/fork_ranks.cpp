#include "tests/fault/fork_ranks.hpp"

#include <chrono>
#include <memory>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/error.hpp"
#include "runtime/comm/bootstrap/bootstrap.hpp"

namespace ringsmith::test {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kRecord = 4096;

// One datagram per record: a rank sends its own to the parent, which answers with all.
class PairBootstrap : public comm::Bootstrap {
 public:
  PairBootstrap(int rank, int world, int socket) : rank_(rank), world_(world), socket_(socket) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return world_; }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& record) override {
    if (send(socket_, record.data(), record.size(), 0) < 0) throw CommError("bootstrap: send");
    std::vector<std::string> all;
    std::string buffer(kRecord, '\0');
    for (int r = 0; r < world_; ++r) {
      const ssize_t n = ::recv(socket_, buffer.data(), buffer.size(), 0);
      if (n <= 0) throw CommError("bootstrap: recv");
      all.emplace_back(buffer.data(), static_cast<std::size_t>(n));
    }
    return all;
  }

 private:
  int rank_, world_, socket_;
};

// The kind of an error and its text, as one line.
std::string describe(const std::exception& e) {
  const char* kind = "exception";
  if (dynamic_cast<const MismatchError*>(&e) != nullptr)
    kind = "MismatchError";
  else if (dynamic_cast<const PeerLost*>(&e) != nullptr)
    kind = "PeerLost";
  else if (dynamic_cast<const TimeoutError*>(&e) != nullptr)
    kind = "TimeoutError";
  else if (dynamic_cast<const UsageError*>(&e) != nullptr)
    kind = "UsageError";
  return std::string(kind) + ": " + e.what();
}

[[noreturn]] void be_rank(int rank, int world, int socket, const comm::GroupOptions& options,
                          const std::function<void(comm::ProcessGroup&)>& body) {
  std::string report = " ";
  int peer = -1;
  try {
    const auto group =
        comm::init_process_group(std::make_shared<PairBootstrap>(rank, world, socket), options);
    body(*group);
  } catch (const Error& e) {
    report = describe(e);
    peer = e.where().peer;
  } catch (const std::exception& e) {
    report = describe(e);
  }
  report = std::to_string(peer) + ' ' + report;
  if (send(socket, report.data(), report.size(), 0) < 0) _exit(1);
  _exit(0);
}

}  // namespace

std::vector<Outcome> run_ranks(int world, comm::GroupOptions options,
                               const std::function<void(comm::ProcessGroup&)>& body) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(world));
  std::vector<pollfd> links;
  const auto start = Clock::now();
  for (int r = 0; r < world; ++r) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) throw CommError("socketpair");
    const pid_t pid = fork();
    if (pid == 0) {
      close(pair[0]);
      for (const pollfd& other : links) close(other.fd);
      be_rank(r, world, pair[1], options, body);
    }
    close(pair[1]);
    outcomes[static_cast<std::size_t>(r)].pid = pid;
    links.push_back({pair[0], POLLIN, 0});
  }
  std::vector<std::string> records(links.size());
  std::size_t gathered = 0, open = links.size();
  while (open > 0) {
    if (poll(links.data(), links.size(), 20'000) <= 0) break;
    for (std::size_t r = 0; r < links.size(); ++r) {
      if (links[r].fd < 0 || links[r].revents == 0) continue;
      std::string message(kRecord, '\0');
      const ssize_t n = ::recv(links[r].fd, message.data(), message.size(), 0);
      if (n > 0 && gathered < links.size()) {
        records[r] = message.substr(0, static_cast<std::size_t>(n));
        if (++gathered < links.size()) continue;
        for (const pollfd& link : links)
          for (const std::string& record : records)
            if (send(link.fd, record.data(), record.size(), MSG_NOSIGNAL) < 0) break;
        continue;
      }
      Outcome& outcome = outcomes[r];
      outcome.seconds = std::chrono::duration<double>(Clock::now() - start).count();
      if (n > 0) {
        message.resize(static_cast<std::size_t>(n));
        const std::size_t space = message.find(' ');
        outcome.peer = std::stoi(message.substr(0, space));
        outcome.error = message.substr(space + 1);
        if (outcome.error == " ") outcome.error.clear();
      }
      close(links[r].fd);
      links[r].fd = -1;
      --open;
    }
  }
  for (std::size_t r = 0; r < links.size(); ++r) {
    if (links[r].fd >= 0) {
      kill(outcomes[r].pid, SIGKILL);
      outcomes[r].error = "still running after 20 s";
      close(links[r].fd);
    }
    int status = 0;
    waitpid(outcomes[r].pid, &status, 0);
    outcomes[r].killed = WIFSIGNALED(status);
  }
  return outcomes;
}

}  // namespace ringsmith::test
