// Other processes on the same host flood the port of ringrun's store, each in a different way. No
// job may notice. RINGSMITH_TEST_FLOODED sets the number of launches:
//   RINGSMITH_TEST_FLOODED=20 build/release/bin/tests_launch "[flood]"
// With RINGSMITH_TEST_FLOODED_TCP=1 the ranks connect without their inherited socket, as ranks on
// other hosts must.
#include <arpa/inet.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "runtime/base/process.hpp"
#include "tests/launch/background.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/free_port.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;
using namespace std::chrono_literals;

namespace {

constexpr auto kLimit = 10s;

enum class Kind { silence, junk, half_a_proof, rapid };

Descriptor knock(std::uint16_t port) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const linger reset{1, 0};  // leaves no port in TIME_WAIT
  setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  (void)connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to);
  return socket;
}

[[noreturn]] void flood(Kind kind, std::uint16_t port) {
  const std::string junk(300, '\x5a');
  std::vector<Descriptor> kept(kind == Kind::rapid ? 1 : 3000);
  for (std::size_t n = 0;; ++n) {
    Descriptor socket = knock(port);
    const std::size_t bytes = kind == Kind::junk ? 300 : kind == Kind::half_a_proof ? 32 : 0;
    if (bytes > 0) send(socket.get(), junk.data(), bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    kept[n % kept.size()] = std::move(socket);
  }
}

// Four processes, one of each kind, that connect as fast as they can.
class Flood {
 public:
  explicit Flood(const std::string& port) {
    for (const Kind kind : {Kind::silence, Kind::junk, Kind::half_a_proof, Kind::rapid}) {
      const pid_t test = getpid(), child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != test) _exit(1);
        flood(kind, static_cast<std::uint16_t>(std::stoi(port)));
      }
      children_.push_back(child);
    }
  }
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;
  ~Flood() {
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }

 private:
  std::vector<pid_t> children_;
};

}  // namespace

TEST_CASE("a flood on the store's port holds up no launch on its host", "[flood]") {
  const char* const asked = std::getenv("RINGSMITH_TEST_FLOODED");
  const int launches = asked != nullptr ? std::atoi(asked) : 3;
  const bool by_tcp = std::getenv("RINGSMITH_TEST_FLOODED_TCP") != nullptr;
  const std::string port = free_port();
  const Flood flood(port);
  for (int n = 0; n < launches; ++n) {
    const auto from = std::chrono::steady_clock::now();
    const auto r = ringrun_shell({"--nproc-per-node", "3", "--master-port", port},
                                 std::string(by_tcp ? "unset RINGSMITH_STORE_FD; " : "") +
                                     "sleep 0.2; "
                                     "exec " RINGSMITH_BINARY_DIR
                                     "/bin/all_reduce_perf -b 1K -e 1K -n 1 -w 0");
    const auto took = std::chrono::steady_clock::now() - from;
    INFO("launch " << n << ": " << std::chrono::duration<double>(took).count() << " s\n"
                   << r.out << r.err);
    CHECK(r.exit_code == 0);
    CHECK(took < kLimit);
    if (asked != nullptr)
      std::printf("launch %d: %.3f s\n", n, std::chrono::duration<double>(took).count());
  }
}
