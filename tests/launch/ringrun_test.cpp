// Runs ringrun on one node. torchrun's own tests of a static world have these cases, which are
// covered in the files on the right:
//
//     user script, standalone, number of processes, wrong configuration    here, refusals_test
//     place in node and job, homogeneous and heterogeneous nodes           here, nodes_test
//     happy, sad and bipolar jobs, exit codes, nested failures             here
//     which failure is reported as the cause                               failure_test, nodes_test
//     redirected and copied output, log files                              here, output_test
//     signals, ranks that ignore them, a launcher that dies                signals_test, nodes_test
//     nodes that never arrive, arrive twice, or disagree                   nodes_test
//     the barrier at the end, and its deadline                             nodes_test
#include <chrono>
#include <csignal>
#include <set>
#include <sstream>
#include <sys/stat.h>

#include "tests/launch/background.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::testing;

namespace {

using Words = std::vector<std::string>;

std::multiset<std::string> lines_of(const std::string& text) {
  std::multiset<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.insert(line);
  return out;
}

struct Case {
  const char* name;
  Words options;
  const char* script;
  int exit_code;
  Words out;          // on standard output
  Words err;          // on standard error
  Words absent = {};  // on neither
};

const Words kTwo{"--standalone", "--nproc-per-node", "2"};
const Words kFour{"--standalone", "--nproc-per-node", "4"};

const std::vector<Case> kCases = {
    {"happy: every rank ends well",
     kTwo,
     "echo rank $RANK of $WORLD_SIZE",
     0,
     {"[0] rank 0 of 2\n", "[1] rank 1 of 2\n"},
     {},
     {"ringrun"}},
    {"one rank by default", {}, "echo $RANK/$WORLD_SIZE", 0, {"[0] 0/1\n"}, {}},
    {"the names of torchrun",
     {"--nproc_per_node=2", "--node_rank=0"},
     "echo $WORLD_SIZE",
     0,
     {"[0] 2\n", "[1] 2\n"},
     {}},
    {"an option of the program is none of ours",
     {},
     "echo \"$@\" --nnodes=x_y",
     0,
     {"[0] --nnodes=x_y\n"},
     {}},
    {"an option after the program is its own, underscores and all",
     {"--max_restarts", "0", "--nproc-per-node", "1", "echo", "--batch_size", "3"},
     "",
     0,
     {"[0] --batch_size 3"},
     {}},
    {"--nnodes as a fixed range",
     {"--nnodes", "1:1"},
     "echo $GROUP_WORLD_SIZE",
     0,
     {"[0] 1\n"},
     {}},
    {"place in node and job",
     kTwo,
     "echo $RANK $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $MASTER_ADDR "
     "$RINGSMITH_STORE $OMP_NUM_THREADS",
     0,
     {"[1] 1 1 2 0 1 127.0.0.1 launcher 1\n"},
     {}},
    {"a port was taken before the ranks started", kTwo, "test $MASTER_PORT -gt 1023", 0, {}, {}},
    {"standard input is empty", {}, "wc -c", 0, {"[0] 0\n"}, {}},
    {"without the prefix", {"--no-prefix"}, "echo plain", 0, {"plain\n"}, {}, {"[0]"}},
    {"a last line without an end", {}, "printf end", 0, {"[0] end\n"}, {}},
    {"standard error stays there", {}, "echo bad >&2", 0, {}, {"[0] bad\n"}},
    {"a rank may end well before the others",
     kTwo,
     "[ $RANK = 0 ] || sleep 0.3",
     0,
     {},
     {},
     {"failed"}},
    {"sad: every rank fails",
     kTwo,
     "exit 1",
     1,
     {},
     {"ringrun: rank ", "failed first: exit code 1"}},
    {"bipolar: one of four fails, the others are ended",
     kFour,
     "[ $RANK != 2 ] && exec sleep 60; echo step 17; echo boom >&2; exit 7",
     7,
     {"[2] step 17\n"},
     {"ringrun: rank 2 failed first: exit code 7", "s after the start)", "local rank 2, pid ",
      "    boom\n", "rank 0: ended by ringrun", "rank 3: ended by ringrun"}},
    {"killed: by name and number",
     kTwo,
     "[ $RANK = 0 ] && exec sleep 60; kill -KILL $$",
     137,
     {},
     {"rank 1 failed first: signal 9 (SIGKILL)", "it printed nothing"}},
    {"a segmentation fault", {}, "ulimit -c 0; kill -SEGV $$", 139, {}, {"signal 11 (SIGSEGV)"}},
    // ringrun is stopped until the witness has ended. It continues just before the culprit ends.
    {"a witness is not the culprit",
     kFour,
     "case $RANK in 0) echo y > fifo; exit 3;; 3) kill -STOP $PPID; while read y; do :; done < "
     "fifo; kill -CONT $PPID; kill -ABRT $$;; esac; exec sleep 60",
     134,
     {},
     {"rank 3 failed first: signal 6 (SIGABRT)", "rank 0: exit code 3"}},
    {"whoever ignores SIGTERM is killed",
     {"--nproc-per-node", "2", "--grace", "0.2"},
     "[ $RANK = 0 ] && { sleep 0.1; exit 9; }; trap '' TERM; while :; do sleep 0.05; done",
     9,
     {},
     {"rank 0 failed first: exit code 9"}},
    {"SIGTERM gives the others time to end well",
     kTwo,
     "[ $RANK = 0 ] && { read ready < fifo; exit 4; }; trap 'echo saved; exit 0' TERM; "
     "echo y > fifo; sleep 60 & wait",
     4,
     {"[1] saved\n"},
     {"rank 0 failed first: exit code 4"}},
    {"nested: the innermost failure is told, and its code goes all the way out",
     {},
     "exec " RINGSMITH_BINARY_DIR "/bin/ringrun --standalone --nproc-per-node 2 -- sh -c "
     "'[ $RANK = 0 ] && exec sleep 60; echo inner; exit 5'",
     5,
     {"[0] [1] inner\n"},
     {"[0] ringrun: rank 1 failed first: exit code 5",
      "\nringrun: rank 0 failed first: exit code 5", "    inner\n"}},
    {"a rank that is no rank any more: its own children are ended with it",
     kTwo,
     "[ $RANK = 0 ] && { sleep 0.3; exit 4; }; " RINGSMITH_BINARY_DIR
     "/bin/ringrun --standalone -- sleep 60",
     4,
     {},
     {"rank 0 failed first: exit code 4", "rank 1: ended by ringrun"}},
    {"a stopped rank ends too",
     kTwo,
     "[ $RANK = 0 ] && { sleep 0.3; exit 4; }; kill -STOP $$",
     4,
     {},
     {"rank 0 failed first"}},
};

}  // namespace

TEST_CASE("a table of launches", "[ringrun]") {
  for (const Case& c : kCases) {
    const TemporaryFolder folder;  // with a pipe, on which ranks wait for each other
    REQUIRE(mkfifo((folder / "fifo").c_str(), 0600) == 0);
    const auto r = ringrun_shell(c.options, "cd " + folder.path.string() + "; " + c.script);
    INFO(c.name << "\n" << r.out << r.err);
    CHECK_FALSE(r.timed_out);
    CHECK(r.exit_code == c.exit_code);
    for (const std::string& text : c.out) CHECK_THAT(r.out, ContainsSubstring(text));
    for (const std::string& text : c.err) CHECK_THAT(r.err, ContainsSubstring(text));
    for (const std::string& text : c.absent) CHECK((r.out + r.err).find(text) == std::string::npos);
  }
}

TEST_CASE("auto and cpu start a rank for each core that may be used", "[ringrun]") {
  for (const char* word : {"auto", "cpu"}) {
    const auto r = ringrun_shell({"--nproc-per-node", word},
                                 "test $WORLD_SIZE = $(env -u OMP_NUM_THREADS nproc)");
    INFO(r.err);
    CHECK(r.exit_code == 0);
  }
}

TEST_CASE("lines of many ranks come whole, each once", "[ringrun]") {
  const auto r = ringrun_shell(
      {"--nproc-per-node", "8"},
      "i=0; while [ $i -lt 200 ]; do echo $RANK line $i of two hundred; i=$((i+1)); done");
  std::multiset<std::string> expected;
  for (int rank = 0; rank < 8; ++rank)
    for (int i = 0; i < 200; ++i)
      expected.insert("[" + std::to_string(rank) + "] " + std::to_string(rank) + " line " +
                      std::to_string(i) + " of two hundred");
  CHECK(lines_of(r.out) == expected);
}

TEST_CASE("output into files, and with --tee to the screen as well", "[ringrun]") {
  const TemporaryFolder folder;
  const std::string script = "echo out $RANK; echo err $RANK >&2; exit $RANK";
  auto r = ringrun_shell({"--nproc-per-node", "2", "--log-dir", folder / "a"}, script);
  CHECK(r.exit_code == 1);
  CHECK(r.out.empty());
  CHECK_THAT(r.err, ContainsSubstring(folder / "a/rank-1") && ContainsSubstring("    err 1"));
  for (const std::string rank : {"0", "1"}) {
    CHECK(read_text(folder / ("a/rank-" + rank + ".out")) == "out " + rank + "\n");
    CHECK(read_text(folder / ("a/rank-" + rank + ".err")) == "err " + rank + "\n");
  }
  r = ringrun_shell({"--nproc-per-node", "2", "--log-dir", folder / "b", "--tee"}, script);
  CHECK_THAT(r.out, ContainsSubstring("[0] out 0\n") && ContainsSubstring("[1] out 1\n"));
  CHECK(read_text(folder / "b/rank-0.out") == "out 0\n");
  r = ringrun_shell({"--log-dir", folder / "a"}, script);
  CHECK(r.exit_code == 6);
  CHECK_THAT(r.err, ContainsSubstring("is not empty"));
  CHECK(read_text(folder / "a/rank-0.out") == "out 0\n");
}

TEST_CASE("what a rank left running in its group ends with it", "[ringrun]") {
  const TemporaryFolder folder;
  const auto began = std::chrono::steady_clock::now();
  const auto r = ringrun_shell({}, "sleep 300 & echo $! > " + (folder / "pid") + "; exit 0");
  CHECK(r.exit_code == 0);
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(30));
  const pid_t left = std::stoi(read_text(folder / "pid"));
  CHECK(eventually([left] { return !alive(left); }));
}

TEST_CASE("a reader that leaves ends the job", "[ringrun]") {
  const auto r = run_program({"bash", "-c",
                              "set -o pipefail; " + kRingrun +
                                  " -- sh -c 'while :; do echo y; sleep 0.01; done' | head -n 2"},
                             60);
  CHECK(r.exit_code == 128 + SIGPIPE);
  CHECK(r.out == "[0] y\n[0] y\n");
}

TEST_CASE("--make-secret makes a file once", "[ringrun]") {
  const TemporaryFolder folder;
  CHECK(ringrun({"--make-secret", folder / "s"}).exit_code == 0);
  const std::string secret = read_text(folder / "s");
  CHECK(secret.size() == 65);
  CHECK(ringrun({"--make-secret", folder / "s"}).exit_code == 6);
  CHECK(read_text(folder / "s") == secret);
}

TEST_CASE("the secret is on no command line", "[ringrun]") {
  const TemporaryFolder folder;
  // printf is built into the shell, so the secret appears in no command line.
  const auto r = ringrun_shell(
      {"--nproc-per-node", "2"},
      "cd " + folder.path.string() +
          "; printf '%s\\n' \"$RINGSMITH_SECRET\" > secret.$RANK; "
          "cat /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -cFf secret.$RANK; true");
  CHECK(r.exit_code == 0);
  CHECK_THAT(r.out, ContainsSubstring("[0] 0\n") && ContainsSubstring("[1] 0\n"));
  CHECK(read_text(folder / "secret.0").size() == 65);
}

TEST_CASE("help names every variable and exit code, and fits a page", "[ringrun]") {
  const auto r = ringrun({"--help"});
  CHECK(r.exit_code == 0);
  for (const char* word :
       {"RANK, WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "MASTER_ADDR", "RINGSMITH_STORE",
        "RINGSMITH_STORE_FD", "RINGSMITH_ROUND", "TORCHELASTIC_RESTART_COUNT", "--max-restarts",
        "--rdzv-endpoint", "RINGSMITH_SECRET", "OMP_NUM_THREADS", "seconds", "Exit codes",
        "--standalone"})
    CHECK_THAT(r.out, ContainsSubstring(word));
  for (const std::string& line : lines_of(r.out)) CHECK(line.size() <= 100);
}
