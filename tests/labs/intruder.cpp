// intruder PORT SOCKET JUDGE FILE... : makes the attempts of a hostile submission, in place of a
// driver. Prints "NAME reached" or "NAME kept" for each. Any user may read and write FILEs, a
// process listens at PORT and at SOCKET, and JUDGE is a process.
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <string>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

void say(const std::string& what, bool reached) {
  std::printf("%s %s\n", what.c_str(), reached ? "reached" : "kept");
  std::fflush(stdout);
}

bool connects(int family, const void* address, unsigned size) {
  const int s = socket(family, SOCK_STREAM, 0);
  const bool done = s >= 0 && connect(s, static_cast<const sockaddr*>(address), size) == 0;
  if (s >= 0) close(s);
  return done;
}

bool connects_to_path(const std::string& path, bool abstract) {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  path.copy(to.sun_path + abstract, sizeof to.sun_path - 2);
  return connects(AF_UNIX, &to, unsigned(offsetof(sockaddr_un, sun_path) + abstract + path.size()));
}

bool reads(const std::string& path) {
  char byte;
  const int file = open(path.c_str(), O_RDONLY);
  const bool done = file >= 0 && read(file, &byte, 1) == 1;
  if (file >= 0) close(file);
  return done;
}

void try_files(int count, char** files) {
  for (int i = 0; i < count; ++i) {
    const std::string path = files[i];
    say("read " + path, reads(path));
    say("append " + path, open(path.c_str(), O_WRONLY | O_APPEND) >= 0);
    say("truncate " + path, truncate(path.c_str(), 0) == 0);
    say("chmod " + path, chmod(path.c_str(), 0600) == 0);
    say("link " + path, link(path.c_str(), "mine") == 0);
    say("rename " + path, rename(path.c_str(), (path + ".moved").c_str()) == 0);
    say("unlink " + path, unlink(path.c_str()) == 0);
    execl(path.c_str(), path.c_str(),
          nullptr);  // success prints no line; the test counts the lines
    say("run " + path, false);
  }
}

void try_processes(pid_t judge) {
  const std::string its = "/proc/" + std::to_string(judge);
  char word[8];
  iovec mine{word, 8}, theirs{reinterpret_cast<void*>(0x400000), 8};
  say("signal the judge", kill(judge, 0) == 0);
  say("signal init", kill(1, SIGURG) == 0 && getpid() > 2);
  say("trace the judge", ptrace(PTRACE_ATTACH, judge, 0, 0) == 0);
  say("memory of the judge",
      process_vm_readv(judge, &mine, 1, &theirs, 1, 0) > 0 || reads(its + "/mem"));
  say("environment of the judge", reads(its + "/environ"));
  say("descriptors of the judge", access((its + "/fd/0").c_str(), F_OK) == 0);
}

void try_system() {
  sockaddr_in none{};
  say("mount", syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, 0) == 0);
  say("a namespace", syscall(SYS_unshare, 0x10000000) == 0);
  say("a file in the system", open("/usr/intruder", O_WRONLY | O_CREAT, 0600) >= 0);
  say("accounts", reads("/etc/passwd") || reads("/etc/shadow"));
  say("root's rights", geteuid() == 0);
  say("io_uring", syscall(425, 1, nullptr) >= 0 || errno != EPERM);
  (void)none;
}

// Forks until fork fails or there are `enough` children, which wait for a signal.
int children_at_most(int enough) {
  int count = 0;
  for (; count < enough; ++count) {
    const pid_t child = fork();
    if (child < 0) break;
    if (child == 0) {
      pause();
      _exit(0);
    }
  }
  signal(SIGTERM, SIG_IGN);
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argv[1];
  if (what == "outlive") {  // two generations away, in a separate session if possible
    if (fork() == 0) {
      setsid();
      if (fork() == 0) execl("/usr/bin/sleep", "sleep", argv[2], nullptr);
      _exit(0);
    }
    sleep(argc > 3 ? 300 : 1);
    return 0;
  }
  if (what == "children") {
    std::printf("%d\n", children_at_most(std::atoi(argv[2])));
    std::fflush(stdout);
    return 0;
  }
  if (what == "memory") return std::malloc(std::size_t{1} << 30) == nullptr ? 7 : 0;
  if (what == "disk") {
    const int file = open("large", O_WRONLY | O_CREAT, 0600);
    std::string piece(1 << 20, 'x');
    for (int i = 0; i < 4096; ++i)
      if (write(file, piece.data(), piece.size()) < 0) return 7;
    return 0;
  }
  if (what == "own") {  // resources that a lab may use: its own files, shared memory, processes
    const int file = open("mine", O_RDWR | O_CREAT, 0600);
    void* shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int ends[2];
    if (file < 0 || write(file, "x", 1) != 1 || shared == MAP_FAILED) return 1;
    if (pipe(ends) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 2;
    const pid_t child = fork();
    if (child == 0) pause();
    int status = 0;
    if (kill(child, SIGTERM) != 0 || waitpid(child, &status, 0) != child) return 3;
    return std::getenv("LAB_NAME") == nullptr || reads("/proc/self/exe") ? 0 : 4;
  }
  sockaddr_in port{};
  port.sin_family = AF_INET;
  port.sin_port = htons(std::uint16_t(std::atoi(argv[1])));
  port.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  say("a port of this machine", connects(AF_INET, &port, sizeof port));
  say("a socket in a folder", connects_to_path(argv[2], false));
  say("an abstract socket", connects_to_path("labs-intruder-" + std::string(argv[1]), true));
  try_processes(std::atoi(argv[3]));
  try_system();
  try_files(argc - 4, argv + 4);
}
