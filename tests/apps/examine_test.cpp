// Tests doctor's conclusions from the kernel's files, with contents from other machines.
#include <sys/resource.h>

#include "labs/apps/common/processor.hpp"
#include "labs/apps/doctor/findings.hpp"
#include "tests/apps/programs.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::apps;
using namespace ringsmith::testing;

namespace {

std::string arm(const std::string& maker, const std::string& part) {
  return "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd evtstrm\nCPU implementer\t: " +
         maker + "\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: " + part +
         "\nCPU revision\t: 1\n";
}

}  // namespace

TEST_CASE("a processor's name, or who made it and which part it is", "[doctor]") {
  CHECK(processor_name("processor\t: 0\nmodel\t\t: 1\nmodel name\t: AMD EPYC 9R14\nflags\t: a\n") ==
        "AMD EPYC 9R14");
  CHECK(processor_name(arm("0x41", "0xd0c")) == "Arm Neoverse-N1");
  CHECK(processor_name(arm("0x41", "0xd08")) == "Arm Cortex-A72");
  CHECK(processor_name(arm("0x41", "0xd40")) == "Arm Neoverse-V1");
  CHECK(processor_name(arm("0x41", "0xd49")) == "Arm Neoverse-N2");
  CHECK(processor_name(arm("0x41", "0xd4f")) == "Arm Neoverse-V2 (Grace)");
  CHECK(processor_name(arm("0x41", "0xfff")) == "Arm part 0xfff");
  CHECK(processor_name(arm("0x61", "0x022")) == "Apple part 0x022");
  CHECK(processor_name(arm("0xc0", "0xac3")) == "Ampere part 0xac3");
  CHECK(processor_name(arm("0x99", "0xd0c")) == "implementer 0x99 part 0xd0c");
  CHECK(processor_name("") == "unknown CPU");
  CHECK(processor_name("model name\t:\n") == "unknown CPU");
}

TEST_CASE("a CPU quota is the least of a group's and of those above it", "[doctor]") {
  const TemporaryFolder folder;
  const auto put = [&](const std::string& file, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(folder / file).parent_path());
    write_text(folder / file, text);
  };
  const auto quota = [&](const std::string& groups) {
    return cpu_quota(groups, folder.path).value_or(0);
  };
  CHECK(quota("0::/job\n") == 0);
  put("cpu.max", "max 100000\n");
  put("job/cpu.max", "150000 100000\n");
  put("job/rank/cpu.max", "400000 100000\n");
  CHECK(quota("0::/\n") == 0);
  CHECK(quota("0::/job\n") == 1.5);
  CHECK(quota("0::/job/rank\n") == 1.5);
  CHECK(quota("0::/job/elsewhere\n") == 1.5);
  put("cpu/cpu.cfs_quota_us", "200000\n");
  put("cpu/cpu.cfs_period_us", "50000\n");
  put("cpu/a/cpu.cfs_quota_us", "-1\n");
  put("cpu/a/cpu.cfs_period_us", "100000\n");
  CHECK(quota("4:cpu,cpuacct:/a\n1:name=systemd:/x\n") == 4);
  CHECK(quota("4:cpuacct:/\n") == 0);
  CHECK(quota("no such line\n:\n") == 0);
}

TEST_CASE("a processor's flag is a whole word", "[doctor]") {
  const std::string text = "flags\t\t: fpu pku ospke avx2\nflags\t\t: other\n";
  CHECK(has_processor_flag(text, "ospke"));
  CHECK(has_processor_flag(text, "avx2"));
  CHECK_FALSE(has_processor_flag(text, "ospk"));
  CHECK_FALSE(has_processor_flag(text, "other"));
  CHECK_FALSE(has_processor_flag(arm("0x41", "0xd0c"), "ospke"));
}

TEST_CASE("a limit on addresses is a warning with the remedy", "[doctor]") {
  CHECK(judge_address_limit(RLIM_INFINITY).verdict == Finding::Verdict::ok);
  const Finding limited = judge_address_limit(std::uint64_t{40} << 30);
  CHECK(limited.verdict == Finding::Verdict::warn);
  CHECK_THAT(limited.fact, ContainsSubstring("40.0 GiB"));
  CHECK(limited.remedy == "ulimit -v unlimited");
}

TEST_CASE("doctor without a loopback interface says how to bring it up", "[doctor]") {
  const std::string doctor = RINGSMITH_BINARY_DIR "/bin/doctor --width 100";
  if (run_program({"unshare", "--net", "true"}).exit_code != 0) {
    WARN("not run: no right to make network namespaces");
    return;
  }
  auto r = run_program({"unshare", "--net", "sh", "-c", "exec " + doctor});
  INFO(r.out << r.err);
  CHECK_THAT(r.out, ContainsSubstring("warn  loopback      down") &&
                        ContainsSubstring("remedy: ip link set lo up"));
  r = run_program({"unshare", "--net", "sh", "-c", "ip link set lo up; exec " + doctor});
  CHECK_THAT(r.out, ContainsSubstring("ok    loopback      127.0.0.1"));
}
