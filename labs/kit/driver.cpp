// main() of every driver: reads one request and writes one observation, through two inherited
// pipes. The answer carries the request's nonce, so that the judge does not mistake output of the
// student's code for an answer. A third pipe is the alarm: the judge writes to it when the run's
// deadline has passed. Only the judge knows how long the machine let this run compute or sleep
// (labs/course/granted.py).
#include "labs/kit/driver.hpp"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <stdexcept>
#include <thread>
#include <unistd.h>

#include "labs/kit/channel.hpp"

namespace kit {
namespace channel {

int answers = -1;
std::string nonce;
std::atomic<bool> answered = false;

std::string read_all(int from) {
  std::string all;
  char piece[1 << 16];
  for (ssize_t got; (got = read(from, piece, sizeof piece)) > 0;)
    all.append(piece, std::size_t(got));
  close(from);
  return all;
}

void write_all(int to, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = write(to, bytes.data(), bytes.size());
    if (wrote <= 0) _exit(4);  // the reader has exited
    bytes.remove_prefix(std::size_t(wrote));
  }
}

void forget() {
  close(answers);
  answered = true;
}

// Sends this process's only frame. The end of the scenario and the watchdog race to send it; the
// first call wins, and returns true.
bool answer(const std::string& status, const std::string& message, Observation& seen) {
  if (answered.exchange(true)) return false;
  seen.put("kit.status", status);
  seen.put("kit.message", message);
  const std::string body = seen.encode();
  const std::string frame = "LABS " + nonce + ' ' + std::to_string(body.size()) + '\n' + body;
  write_all(answers, frame);
  return true;
}

}  // namespace channel

namespace {

std::map<std::string, Scenario>& scenarios() {
  static std::map<std::string, Scenario> all;
  return all;
}

std::atomic<Describe> describe_hang = nullptr;

void watch(int alarm, double deadline) {
  std::thread([alarm, deadline] {
    char byte = 0;
    ssize_t got = 0;
    while ((got = read(alarm, &byte, 1)) < 0 && errno == EINTR) {
    }
    if (got < 0) return;  // the student's code closed the pipe: the judge ends this run
    char head[80];
    std::snprintf(head, sizeof head, "not done after %.1f s\n", deadline);
    std::string report = head;
    if (const Describe describe = describe_hang) report += describe();
    Observation none;
    if (channel::answer("hang", report, none)) _exit(3);
  }).detach();
}

void answer_to(const Request& in) {
  Observation out;
  const std::string name = in.text("scenario");
  try {
    const auto scenario = scenarios().find(name);
    if (scenario == scenarios().end()) throw std::logic_error("no scenario named " + name);
    scenario->second(in, out);
    channel::answer("done", "", out);
  } catch (const NotAttempted& skipped) {
    channel::answer("not attempted", skipped.task, out);
  } catch (const Hang& hang) {
    channel::answer("hang", hang.report, out);
  } catch (const Misuse& misuse) {
    channel::answer("misuse", misuse.message, out);
  } catch (const std::exception& error) {
    channel::answer("threw", error.what(), out);
  }
}

}  // namespace

void describe_hangs_with(Describe describe) { describe_hang = describe; }
Registered::Registered(const char* name, Scenario scenario) { scenarios()[name] = scenario; }

}  // namespace kit

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "%s is run by the judge: make check N=...\n", argv[0]);
    return 2;
  }
  using namespace kit;
  channel::answers = std::atoi(argv[2]);
  fcntl(channel::answers, F_SETFD, FD_CLOEXEC);
  Request in = Request::decode(channel::read_all(std::atoi(argv[1])));
  channel::nonce = in.text("kit.nonce");
  in.remove("kit.nonce");
  watch(std::atoi(argv[3]), in.number("kit.deadline"));
  answer_to(in);
  std::fflush(nullptr);
  _exit(0);  // without waiting for threads that still hang
}
