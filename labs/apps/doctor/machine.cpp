// doctor's examination of a machine.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "labs/apps/common/processor.hpp"
#include "labs/apps/common/text.hpp"
#include "labs/apps/doctor/findings.hpp"
#include "runtime/device/device.hpp"
#include "runtime/device/transfer.hpp"

namespace ringsmith::apps {

namespace {

namespace fs = std::filesystem;
using Verdict = Finding::Verdict;

constexpr std::array<const char*, 4> kNames{"ok", "note", "warn", "FAIL"};
constexpr std::size_t kIndent = 20;  // columns before the text

// Returns the file's first line without trailing whitespace, or an empty string if there is no such
// file.
std::string first_line(const fs::path& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  line.erase(line.find_last_not_of(" \t\r\n\v\f") + 1);
  return line;
}

std::string mebibytes(std::uint64_t bytes) {
  return bytes >= std::uint64_t{4} << 30 ? fmt::format("{} GiB", bytes >> 30)
                                         : fmt::format("{} MiB", bytes >> 20);
}

std::string find_program(const std::string& name) {
  const char* const path = std::getenv("PATH");
  std::string rest = path != nullptr ? path : "";
  while (!rest.empty()) {
    const std::size_t colon = std::min(rest.find(':'), rest.size());
    const std::string candidate = rest.substr(0, colon) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    rest.erase(0, colon + 1);
  }
  return {};
}

// Runs `trial` in a child process, so that it cannot change this process.
bool succeeds(bool (*trial)()) {
  const pid_t child = fork();
  if (child == 0) _exit(trial() ? 0 : 1);
  int status = 1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

Finding cores() {
  const int mine = cores_to_run_on();
  const long all = sysconf(_SC_NPROCESSORS_ONLN);
  if (const auto quota = cpu_quota(); quota && *quota < mine)
    return {Verdict::note, "cores",
            fmt::format("{} of {}, and a CPU quota of {:.4g}: {} for ranks", mine, all, *quota,
                        allowed_cores()),
            "the quota is set by the control group: docker --cpus, CPUQuota=, a Kubernetes limit"};
  if (mine == all)
    return {Verdict::ok, "cores", fmt::format("{}, all available to this process", all)};
  return {Verdict::note, "cores", fmt::format("{} of {} available to this process", mine, all),
          "if that is not intended: mpirun --bind-to none, taskset, or the container's CPU set"};
}

Finding memory() {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const auto all = page * static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES));
  const auto free = page * static_cast<std::uint64_t>(sysconf(_SC_AVPHYS_PAGES));
  return {Verdict::ok, "memory", mebibytes(all) + ", " + mebibytes(free) + " free"};
}

Finding shared_memory() {
  const bool works = succeeds([] {
    const int file = memfd_create("doctor", MFD_CLOEXEC);
    return file >= 0 && ftruncate(file, off_t{1} << 30) == 0 &&
           mmap(nullptr, std::size_t{1} << 30, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) !=
               MAP_FAILED;
  });
  if (!works)
    return {Verdict::fail, "shared memory", "memfd_create or a mapping of 1 GiB is refused",
            "check ulimit -v, the cgroup's memory limit and the container's seccomp profile"};
  struct statvfs shm {};
  const bool there = statvfs("/dev/shm", &shm) == 0;
  return {
      Verdict::ok, "shared memory",
      "memfd works" + (there ? fmt::format("; /dev/shm has {}, which is not used",
                                           mebibytes(std::uint64_t{shm.f_blocks} * shm.f_frsize))
                             : std::string())};
}

Finding locked_memory() {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  if (limit.rlim_cur == RLIM_INFINITY) return {Verdict::ok, "memlock", "unlimited"};
  const std::string has = mebibytes(limit.rlim_cur);
  if (!has_rdma()) return {Verdict::ok, "memlock", has + "; only RDMA would need more"};
  return {Verdict::warn, "memlock", has + ": RDMA registers more than that",
          "ulimit -l unlimited ('* - memlock unlimited' in /etc/security/limits.conf, "
          "LimitMEMLOCK=infinity for slurmd, --ulimit memlock=-1 for docker)"};
}

Finding open_files() {
  constexpr rlim_t kEnough = 1024;  // enough for a socket and a memory file per rank of the host
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto has = static_cast<unsigned long long>(limit.rlim_cur);
  if (limit.rlim_cur >= kEnough) return {Verdict::ok, "open files", fmt::format("{}", has)};
  return {Verdict::warn, "open files",
          fmt::format("{}: a rank needs two for each rank of its host", has), "ulimit -n 1024"};
}

Finding addresses() {
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  return judge_address_limit(limit.rlim_cur);
}

Finding tracing() {
  const std::string scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
  if (scope.empty() || scope == "0")
    return {Verdict::ok, "ptrace scope", "0: a debugger can attach to a rank that hangs"};
  return {Verdict::note, "ptrace scope",
          scope +
              ": a debugger cannot attach to a rank; ringsmith needs no ptrace, but Open MPI's "
              "single-copy path does",
          "to debug: sysctl kernel.yama.ptrace_scope=0"};
}

Finding namespaces() {
  if (succeeds([] { return unshare(CLONE_NEWNET) == 0; }))
    return {Verdict::ok, "namespaces",
            "network namespaces can be created: the tests run on two nodes"};
  return {Verdict::note, "namespaces",
          "no permission to create network namespaces: no tests on two nodes",
          "run make test as root, or with CAP_SYS_ADMIN"};
}

Finding kernel_clock() {
  const std::string source =
      first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  if (source.empty() || source == "tsc" || source == "kvm-clock" || source == "arch_sys_counter")
    return {Verdict::ok, "clock", source.empty() ? "unknown source" : source};
  return {
      Verdict::warn, "clock",
      source +
          ": reading the time takes a system call, which distorts traces and short measurements",
      "if the processor has a stable TSC: clocksource=tsc on the kernel's command line"};
}

void processor(Findings& out) {
  const std::string text = processor_text();
  out.push_back({Verdict::ok, "processor", processor_name(text)});
#ifdef RINGSMITH_VGPU
  if (has_processor_flag(text, "ospke"))
    out.push_back(
        {Verdict::ok, "memory keys", "the emulator detects every host access to device memory"});
  else
    out.push_back({Verdict::note, "memory keys",
                   "no memory protection keys: the emulator does not detect host accesses to "
                   "device memory unless VGPU_GUARD=pages",
                   "correct programs need none; VGPU_GUARD=pages checks, but is slow"});
#endif
}

// Returns the address in an interface's entry, or an empty string if the interface is down or the
// address is link-local or not an IP address.
std::string address_in(const ifaddrs& entry) {
  if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0) return {};
  const int family = entry.ifa_addr->sa_family;
  if (family != AF_INET && family != AF_INET6) return {};
  if (family == AF_INET6) {
    sockaddr_in6 six{};
    std::memcpy(&six, entry.ifa_addr, sizeof six);
    if (IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr)) return {};
  }
  char text[NI_MAXHOST] = {};
  const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  const int code = getnameinfo(entry.ifa_addr, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return code == 0 ? text : "";
}

std::string describe_interface(const ifaddrs& entry, const std::string& address) {
  const fs::path sys = fs::path("/sys/class/net") / entry.ifa_name;
  const std::string speed = first_line(sys / "speed"), mtu = first_line(sys / "mtu");
  return fmt::format("{} {} (mtu {}{})", entry.ifa_name, address, mtu,
                     speed.empty() || speed == "-1" ? "" : ", " + speed + " Mbit/s");
}

void networks(Findings& out) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(all, freeifaddrs);
  std::string outward, loopback;
  for (const ifaddrs* a = all; a != nullptr; a = a->ifa_next) {
    const std::string address = address_in(*a);
    if (address.empty()) continue;
    if ((a->ifa_flags & IFF_LOOPBACK) != 0)
      loopback += (loopback.empty() ? "" : ", ") + address;
    else
      outward += (outward.empty() ? "" : "; ") + describe_interface(*a, address);
  }
  if (!loopback.empty())
    out.push_back({Verdict::ok, "loopback", loopback});
  else
    out.push_back(
        {Verdict::warn, "loopback",
         "down, or without an address: ranks on this host cannot connect over TCP, nor can mpirun",
         "ip link set lo up (as root)"});
  if (!outward.empty())
    out.push_back({Verdict::ok, "network", outward});
  else
    out.push_back({Verdict::note, "network", "only the loopback: jobs cannot span hosts",
                   "bring an interface up, or start the container with --network host"});
}

std::string describe_rdma_device(const fs::path& device) {
  std::string text = device.filename().string() + ":";
  for (const auto& port : fs::directory_iterator(device / "ports")) {
    std::string gids;
    for (int index = 0; index < 16; ++index) {
      const std::string number = std::to_string(index);
      const std::string gid = first_line(port.path() / "gids" / number);
      if (gid.empty() || gid == "0000:0000:0000:0000:0000:0000:0000:0000") continue;
      gids += (gids.empty() ? "" : ", ") + number + " " +
              first_line(port.path() / "gid_attrs" / "types" / number);
    }
    text += fmt::format(" port {} {}, {}, gids: {}", port.path().filename().string(),
                        first_line(port.path() / "state"), first_line(port.path() / "link_layer"),
                        gids.empty() ? "none" : gids);
  }
  return text;
}

void rdma(Findings& out) {
  if (!has_rdma()) {
    out.push_back({Verdict::note, "RDMA", "no device: ranks on different hosts use TCP",
                   "make test-rdma tests RDMA in a VM with software devices"});
    return;
  }
  for (const auto& device : fs::directory_iterator("/sys/class/infiniband")) {
    const std::string text = describe_rdma_device(device.path());
    const bool active = text.find("ACTIVE") != std::string::npos;
    out.push_back({active ? Verdict::ok : Verdict::warn, "RDMA", text,
                   active ? "" : "no active port: check the cable, ip link, and rdma link"});
  }
  std::error_code none;
  const bool verbs = fs::exists("/dev/infiniband", none) && access("/dev/infiniband", R_OK) == 0;
  if (!verbs)
    out.push_back({Verdict::fail, "RDMA", "/dev/infiniband is missing or not readable by this user",
                   "modprobe ib_uverbs; --device /dev/infiniband for docker"});
}

void gpus(Findings& out) {
  std::error_code none;
  std::size_t real = 0;
  if (fs::is_directory("/proc/driver/nvidia/gpus", none))
    for ([[maybe_unused]] const auto& gpu : fs::directory_iterator("/proc/driver/nvidia/gpus"))
      ++real;
  std::string apart;
  for (int a = 0; a < device_count(); ++a)
    for (int b = 0; b < a; ++b)
      if (!enable_peer_access(Device::cuda(a), Device::cuda(b)) ||
          !enable_peer_access(Device::cuda(b), Device::cuda(a)))
        apart += fmt::format("{}{}-{}", apart.empty() ? "" : ", ", b, a);
  if (!apart.empty())
    out.push_back({Verdict::warn, "GPUs",
                   "no peer access between " + apart +
                       ": gradients between them are staged through host memory",
                   "nvidia-smi topo -m shows the links; CUDA_VISIBLE_DEVICES selects the devices"});
#ifdef RINGSMITH_VGPU
  out.push_back(
      {real > 0 ? Verdict::warn : Verdict::note, "GPUs",
       fmt::format("{} in the machine; this build has {} emulated ones", real, device_count()),
       real > 0 ? "make test-gpu builds for them (cmake --preset gpu)"
                : "none needed: CUDA code runs on the emulator, slowly but correctly"});
#else
  const int seen = device_count();
  if (seen > 0)
    out.push_back({Verdict::ok, "GPUs", fmt::format("{} available to this process", seen)});
  else
    out.push_back({Verdict::warn, "GPUs",
                   fmt::format("built with nvcc, but no GPU can be used ({} in the machine): {}",
                               real, why_no_devices()),
                   "nvidia-smi lists them; CUDA_VISIBLE_DEVICES may hide them"});
#endif
  if (real > 0 && has_rdma() && !fs::exists("/sys/module/nvidia_peermem", none))
    out.push_back(
        {Verdict::note, "GPU + RDMA",
         "nvidia_peermem is not loaded; this version stages gradients through host memory anyway"});
}

Finding launchers() {
  std::string have = "ringrun";
  for (const char* name : {"mpirun", "srun"})
    if (!find_program(name).empty()) have += std::string(", ") + name;
  if (have.find("mpirun") == std::string::npos)
    return {Verdict::note, "launchers", have + "; no mpirun", "apt install openmpi-bin"};
  const bool root = geteuid() == 0 && std::getenv("OMPI_ALLOW_RUN_AS_ROOT") == nullptr;
  return {Verdict::ok, "launchers",
          have + (root ? "; as root, mpirun requires OMPI_ALLOW_RUN_AS_ROOT=1 and "
                         "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
                       : "")};
}

Finding virtual_machine() {
  std::string qemu;
  for (const char* name : {"qemu-system-x86_64", "qemu-system-aarch64"})
    if (qemu.empty()) qemu = find_program(name);
  const bool kvm = access("/dev/kvm", R_OK | W_OK) == 0;
  if (qemu.empty())
    return {Verdict::note, "VM", "no QEMU: the RDMA tests are reported as not run",
            "make test-rdma installs it"};
  return {Verdict::ok, "VM", kvm ? "QEMU, with KVM" : "QEMU, without KVM: slow, but sufficient"};
}

}  // namespace

bool has_rdma() {
  std::error_code none;
  return fs::exists("/sys/class/infiniband", none) && !fs::is_empty("/sys/class/infiniband", none);
}

Finding judge_address_limit(std::uint64_t bytes) {
  if (bytes == RLIM_INFINITY) return {Verdict::ok, "addresses", "unlimited"};
  return {Verdict::warn, "addresses",
          fmt::format("limited to {:.1f} GiB: jobs may fail, because they reserve far more address "
                      "space than memory",
                      static_cast<double>(bytes) / static_cast<double>(std::uint64_t{1} << 30)),
          "ulimit -v unlimited"};
}

Findings examine_machine() {
  Findings out;
  for (const auto look : {cores, memory, shared_memory, locked_memory, open_files, addresses,
                          tracing, namespaces, kernel_clock})
    out.push_back(look());
  processor(out);
  networks(out);
  rdma(out);
  gpus(out);
  out.push_back(launchers());
  out.push_back(virtual_machine());
  return out;
}

std::string render(const Findings& findings, std::size_t width) {
  std::string out;
  for (const Finding& f : findings) {
    const std::string head =
        fmt::format("{:<6}{:<14}", kNames[static_cast<std::size_t>(f.verdict)], f.subject);
    out += wrapped(f.fact, kIndent, width, head) + "\n";
    if (!f.remedy.empty())
      out += wrapped("remedy: " + f.remedy, kIndent, width, std::string(kIndent, ' ')) + "\n";
  }
  return out;
}

Finding::Verdict worst_of(const Findings& findings) {
  Finding::Verdict worst = Finding::Verdict::ok;
  for (const Finding& f : findings) worst = std::max(worst, f.verdict);
  return worst;
}

}  // namespace ringsmith::apps
