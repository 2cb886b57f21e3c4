#include "tests/fault/wrong_program.hpp"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include "runtime/base/error.hpp"
#include "tests/fault/forked_ranks.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/transport.hpp"

namespace ringsmith::test {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kAtOnce = 8;          // programs run concurrently; they mostly wait
constexpr std::chrono::seconds kHangs{40};  // a program that takes longer is killed, and fails
constexpr double kGrace = 2;                // s after the deadline
// On a busy machine everything is late. Each rank is therefore also allowed this many times the
// duration of its start.
constexpr double kLateness = 10;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

const char* type_of(const std::exception& e) {
  if (dynamic_cast<const MismatchError*>(&e) != nullptr) return "MismatchError";
  if (dynamic_cast<const PeerLost*>(&e) != nullptr) return "PeerLost";
  if (dynamic_cast<const TimeoutError*>(&e) != nullptr) return "TimeoutError";
  if (dynamic_cast<const Aborted*>(&e) != nullptr) return "Aborted";
  if (dynamic_cast<const UsageError*>(&e) != nullptr) return "UsageError";
  return dynamic_cast<const CommError*>(&e) != nullptr ? "CommError" : "exception";
}

// Writes to the rank's standard error: seconds allowed, seconds taken, the peer that the error
// names, its type, its text.
void confess(double allowed, Clock::time_point since, const std::exception& e) {
  const auto* const error = dynamic_cast<const Error*>(&e);
  std::fprintf(stderr, "%f %f %d %s %s", allowed, seconds_since(since),
               error != nullptr ? error->where().peer : -1, type_of(e), e.what());
  std::fflush(stderr);
}

void live(const WrongProgram& program, Rank& me) {
  const auto born = Clock::now();
  auto wrong_since = born;
  const int patience = program.start ? kStartPatience : 1;
  double allowed = std::chrono::duration<double>(patience * deadline()).count() + kGrace;
  try {
    // An exception destroys the group, as in a program whose group is a variable of main().
    const std::shared_ptr<Rank> leaving(&me, [](Rank* rank) { rank->group.reset(); });
    if (program.start)
      program.start(me);
    else
      me.group = comm::init_process_group(me.bootstrap, me.options);
    std::vector<float> x(3000);
    for (int call = 0; call < 3 && program.calls_agree_first; ++call)
      me.group->all_reduce(std::span(x));
    wrong_since = Clock::now();
    allowed += kLateness * seconds_since(born);
    const auto other = program.but.find(me.rank());
    (other == program.but.end() ? program.everybody : other->second).run(me);
    // A rank that has noticed no error makes two more calls.
    me.group->barrier();
    me.group->barrier();
  } catch (const std::exception& e) {
    confess(allowed, wrong_since, e);
  }
  me.scores->ended[me.rank()] = 1;
}

struct Running {
  const WrongProgram* program;
  Rank::Scores* scores;
  std::unique_ptr<ForkedRanks> ranks;
};

Running start(const WrongProgram& program) {
  auto* const scores = static_cast<Rank::Scores*>(mmap(
      nullptr, sizeof(Rank::Scores), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  require(scores != MAP_FAILED, "no shared mapping");
  comm::GroupOptions options;
  options.timeout = deadline();
  options.transport = test_transport();
  auto ranks = std::make_unique<ForkedRanks>(
      program.world, [&](std::shared_ptr<comm::Bootstrap> bootstrap, ForkedRanks&) {
        Rank me(std::move(bootstrap), options, scores);
        live(program, me);
      });
  return {&program, scores, std::move(ranks)};
}

// On a slow machine, deadline() is so long that the store's client reports its progress first.
std::string without_progress(const std::string& errors) {
  std::istringstream lines(errors);
  std::string kept, line;
  while (std::getline(lines, line))
    if (!line.starts_with("ringsmith: still trying")) kept += line + '\n';
  return kept;
}

void check_rank(const WrongProgram& program, int rank, const Ending& ending) {
  INFO("rank " << rank << ": " << ending.errors);
  const auto other = program.instead.find(rank);
  const bool has_other = other != program.instead.end();
  if (has_other && other->second.empty()) {
    CHECK(ending.errors.empty());
    return;
  }
  std::istringstream said(without_progress(ending.errors));
  double allowed = 0, took = 0;
  int peer = -1;
  std::string type, text;
  REQUIRE(said >> allowed >> took >> peer >> type);
  std::getline(said >> std::ws, text, '\0');
  CHECK(took < allowed);
  if (has_other) {
    CHECK_THAT(type + ": " + text, ContainsSubstring(other->second));
    return;
  }
  CHECK(type == program.error);
  for (const std::string& part : program.says) CHECK_THAT(text, ContainsSubstring(part));
  if (program.culprit >= 0 && rank != program.culprit) CHECK(peer == program.culprit);
  const bool about_calls = type == "MismatchError" || type == "TimeoutError";
  if (about_calls && program.names_line)
    CHECK_THAT(text, ContainsSubstring(".cpp:") || ContainsSubstring(".hpp:"));
}

void check(const Running& running) {
  const WrongProgram& program = *running.program;
  const auto endings = running.ranks->wait_for_all(kHangs);
  INFO("program: " << program.name);
  for (int r = 0; r < program.world; ++r)
    check_rank(program, r, endings[static_cast<std::size_t>(r)]);
  munmap(running.scores, sizeof(Rank::Scores));
}

}  // namespace

std::chrono::milliseconds deadline() {
  static const milliseconds chosen = [] {
    constexpr double kUsual = 500, kLongest = 4000;  // ms
    constexpr double kQueue = 4;  // programs per core for which the usual deadline suffices
    double load = 0;
    if (getloadavg(&load, 1) != 1) load = 0;
    const double queue = load / static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN));
    return milliseconds(std::lround(std::clamp(kUsual * queue / kQueue, kUsual, kLongest)));
  }();
  return chosen;
}

void Rank::wait_for_the_others() const {
  for (int r = 0; r < world(); ++r)
    while (r != rank() && scores->ended[r] == 0) std::this_thread::sleep_for(milliseconds(5));
}

void Rank::stop() const {
  const pid_t stopped = getpid();
  if (fork() == 0) {
    wait_for_the_others();
    // Repeated, because the process may not have stopped yet.
    for (int again = 0; again < 20; ++again) {
      ::kill(stopped, SIGCONT);
      std::this_thread::sleep_for(milliseconds(20));
    }
    _exit(0);
  }
  raise(SIGSTOP);
}

void check_wrong_programs(const std::vector<WrongProgram>& programs) {
  std::vector<Running> running;
  std::size_t next = 0, done = 0;
  while (done < programs.size()) {
    while (next < programs.size() && next - done < kAtOnce)
      running.push_back(start(programs[next++]));
    check(running[done]);
    running[done++].ranks.reset();
  }
}

}  // namespace ringsmith::test
