// confine [OPTION VALUE]... -- PROGRAM ARGUMENTS...: drops privileges, then executes PROGRAM.
//
//   --memory N --data N --file N   bytes, --processor N seconds, --processes N: rlimits
//   --user N          (as root) becomes this user, which owns only the folder --own
//   --calls inside    seccomp: no system call that reaches out of a sandbox or creates a new one
//   --calls alone     the same where there are no namespaces: refuses more calls
//   --judge PID       stays as PROGRAM's parent, and ends both when the judge, PID, has ended
//   --landlock 1      Landlock: only --read PATH, --write PATH (both repeatable) and --own FOLDER
//                     can be opened
//
// labs/course/sandbox.py chooses the options. With bubblewrap, confine runs twice: outside, only to
// end when the judge ends (bubblewrap alone may miss the judge's death while it starts), and
// inside, as the last step before a student's driver. `confine --probe` prints the ABI version of
// the kernel's Landlock, or 0.
//
// Landlock: https://docs.kernel.org/userspace-api/landlock.html
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <map>
#include <sched.h>
#include <string>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

// The part of Landlock's ABI used here, because an old system's headers may lack it.
struct Ruleset {
  std::uint64_t files, network, scopes;
};
struct [[gnu::packed]] Beneath {
  std::uint64_t allowed;
  std::int32_t parent;
};
constexpr long landlock_create = 444, landlock_add = 445, landlock_restrict = 446;
constexpr std::uint64_t execute = 1, write_file = 2, read_file = 4, read_folder = 8, cut = 1 << 14,
                        device_call = 1 << 15;
constexpr std::uint64_t for_files = execute | write_file | read_file | cut | device_call;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "confine: %s: %s\n", what.c_str(), std::strerror(errno));
  _exit(125);
}

long landlock_abi() { return std::max(0L, syscall(landlock_create, nullptr, 0, 1)); }

std::uint64_t all_file_rights(long abi) {
  // ABI 1 has 13 rights; ABI 2 adds renaming across folders, 3 truncation, 5 ioctl on devices.
  const int count = abi >= 5 ? 16 : abi >= 3 ? 15 : abi >= 2 ? 14 : 13;
  return (std::uint64_t{1} << count) - 1;
}

void allow(int rules, const std::string& path, std::uint64_t rights) {
  const int at = open(path.c_str(), O_PATH | O_CLOEXEC);
  if (at < 0) return;  // not on this machine
  struct stat status {};
  fstat(at, &status);
  Beneath rule{S_ISDIR(status.st_mode) ? rights : rights & for_files, at};
  if (syscall(landlock_add, rules, 1, &rule, 0) != 0) fail("landlock, " + path);
  close(at);
}

void restrict_files(const std::vector<std::string>& reads, const std::vector<std::string>& writes) {
  const long abi = landlock_abi();
  if (abi < 1) fail("this kernel has no Landlock");
  const std::uint64_t all = all_file_rights(abi);
  Ruleset rules{all, abi >= 4 ? 3U : 0U, abi >= 6 ? 3U : 0U};  // TCP; abstract sockets, signals
  const std::size_t known = abi >= 6 ? 24 : abi >= 4 ? 16 : 8;
  const long made = syscall(landlock_create, &rules, known, 0);
  if (made < 0) fail("landlock");
  for (const std::string& path : reads) allow(int(made), path, execute | read_file | read_folder);
  for (const std::string& path : writes) allow(int(made), path, all);
  if (syscall(landlock_restrict, made, 0) != 0) fail("landlock");
  close(int(made));
}

#if defined(__x86_64__)
constexpr std::uint32_t architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t architecture = AUDIT_ARCH_AARCH64;
#else
#error "confine knows the system calls of x86-64 and arm64"
#endif

// Refused calls fail with EPERM. clone3 fails with ENOSYS, so that the C library falls back to
// clone, whose flags can be checked. A call of another architecture kills the process.
void restrict_calls(bool without_namespaces) {
  const auto statement = [](int code, std::uint32_t k) {
    return sock_filter{std::uint16_t(code), 0, 0, k};
  };
  const auto unless = [](std::uint32_t k, int skip) {
    return sock_filter{BPF_JMP | BPF_JEQ | BPF_K, 0, std::uint8_t(skip), k};
  };
  const std::uint32_t refuse = SECCOMP_RET_ERRNO | EPERM;
  std::vector<sock_filter> code = {
      statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      {BPF_JMP | BPF_JEQ | BPF_K, 1, 0, architecture},
      statement(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
  };
#if defined(__x86_64__)
  code.push_back({BPF_JMP | BPF_JGE | BPF_K, 0, 1, 0x40000000});  // x32
  code.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
#endif
  std::vector<long> refused = {
      SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp, SYS_mount, SYS_umount2,
      SYS_pivot_root, SYS_chroot, SYS_setns, SYS_unshare, SYS_add_key, SYS_request_key, SYS_keyctl,
      SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_open_by_handle_at, SYS_name_to_handle_at,
      SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_reboot, SYS_swapon,
      SYS_swapoff, SYS_acct, SYS_quotactl, SYS_syslog, SYS_personality, SYS_fanotify_init,
      // By number, because older headers lack the names; the numbers are the same everywhere:
      // io_uring (which bypasses seccomp), pidfd_getfd, mounts.
      425, 426, 427, 438, 428, 429, 430, 431, 432, 433, 442};
  if (without_namespaces) {
    // No process may leave the process group, which is killed as a whole. The other calls change
    // properties of files that Landlock does not protect: length (up to ABI 2), owner, mode, times,
    // attributes.
    for (const long call :
         {SYS_setsid, SYS_setpgid, SYS_truncate, SYS_fchmod, SYS_fchmodat, SYS_fchown, SYS_fchownat,
          SYS_utimensat, SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr, SYS_removexattr,
          SYS_lremovexattr, SYS_fremovexattr, 452})
      refused.push_back(call);
#if defined(__x86_64__)
    for (const long call : {SYS_chmod, SYS_chown, SYS_lchown, SYS_utime, SYS_utimes, SYS_futimesat})
      refused.push_back(call);
#endif
  }
  for (const long call : refused) {
    code.push_back(unless(std::uint32_t(call), 1));
    code.push_back(statement(BPF_RET | BPF_K, refuse));
  }
  if (without_namespaces) {  // only socketpair() between its own processes remains
    code.push_back(unless(SYS_socket, 1));
    code.push_back(statement(BPF_RET | BPF_K, refuse));
  }
  code.push_back(unless(SYS_clone3, 1));
  code.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS));
  const std::uint32_t spaces = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET |
                               CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
  code.push_back(unless(SYS_clone, 3));
  code.push_back(statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)));
  code.push_back({BPF_JMP | BPF_JSET | BPF_K, 0, 1, spaces});
  code.push_back(statement(BPF_RET | BPF_K, refuse));
  code.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{std::uint16_t(code.size()), code.data()};
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) fail("seccomp");
}

void limit(int what, const std::string& most) {
  if (most.empty()) return;
  const rlim_t value = std::strtoull(most.c_str(), nullptr, 10);
  const rlimit both{value, value};
  if (setrlimit(__rlimit_resource(what), &both) != 0) fail("setrlimit");
}

void become(const std::string& user, const std::string& own) {
  if (user.empty()) return;
  const auto id = uid_t(std::atoi(user.c_str()));
  if (!own.empty() && chown(own.c_str(), id, id) != 0) fail("chown " + own);
  if (setgroups(0, nullptr) != 0 || setresgid(id, id, id) != 0 || setresuid(id, id, id) != 0)
    fail("setuid");
}

void end_the_group(int) { kill(0, SIGKILL); }

// Makes this process end when its parent ends, even if the parent has already ended.
void tie_to(pid_t parent, int by) {
  if (prctl(PR_SET_PDEATHSIG, by) != 0) fail("PR_SET_PDEATHSIG");
  if (getppid() != parent) _exit(125);
}

// Runs the program in a child. The parent waits for the child and exits in the same way. Both are
// killed when the judge ends.
void stay_as_parent(pid_t judge) {
  signal(SIGTERM, end_the_group);
  tie_to(judge, SIGTERM);
  const pid_t parent = getpid(), child = fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    signal(SIGTERM, SIG_DFL);
    tie_to(parent, SIGKILL);
    return;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  signal(SIGTERM, SIG_IGN);
  if (WIFSIGNALED(status)) {
    limit(RLIMIT_CORE, "0");
    signal(WTERMSIG(status), SIG_DFL);
    kill(getpid(), WTERMSIG(status));
  }
  _exit(WEXITSTATUS(status));  // the judge kills the group before it reaps this process
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--probe") == 0) {
    std::printf("%ld\n", landlock_abi());
    return 0;
  }
  std::map<std::string, std::string> options;
  std::vector<std::string> reads, writes;
  int at = 1;
  for (; at + 1 < argc && std::strcmp(argv[at], "--") != 0; at += 2) {
    const std::string name = argv[at];
    if (name == "--read")
      reads.emplace_back(argv[at + 1]);
    else if (name == "--write" || name == "--own")
      writes.emplace_back(argv[at + 1]);
    options[name] = argv[at + 1];
  }
  char** program = argv + at + 1;
  if (at + 1 >= argc) {
    std::fprintf(stderr, "confine: no program; see the head of labs/course/confine.cpp\n");
    return 125;
  }
  const bool landlock = !options["--landlock"].empty();
  if (!options["--judge"].empty()) stay_as_parent(std::atoi(options["--judge"].c_str()));
  if (std::strcmp(argv[1], "--judge") == 0 && at == 3) {  // bubblewrap drops the privileges
    execv(program[0], program);
    fail(program[0]);
  }
  // Opens the program before dropping the privileges: its folder may be closed to other users.
  const int file = open(program[0], O_RDONLY);
  if (file < 0) fail(program[0]);
  if (landlock) reads.emplace_back(program[0]);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail("no_new_privs");
  if (landlock) restrict_files(reads, writes);
  become(options["--user"], options["--own"]);
  if (landlock) prctl(PR_SET_PDEATHSIG, SIGKILL);  // the change of user has cleared it
  if (!options["--calls"].empty()) restrict_calls(options["--calls"] == "alone");
  limit(RLIMIT_CORE, "0");
  limit(RLIMIT_AS, options["--memory"]);
  limit(RLIMIT_DATA, options["--data"]);
  limit(RLIMIT_FSIZE, options["--file"]);
  limit(RLIMIT_CPU, options["--processor"]);
  limit(RLIMIT_NPROC, options["--processes"]);
  execv(program[0], program);
  fexecve(file, program, environ);
  fail(program[0]);
}
