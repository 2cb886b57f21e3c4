// Tests rounds, in which failed ranks are started again, and nodes join and leave. Each node is a
// ringrun on this host. The cases include the reference suite's cases for a changing world: flaky
// workers, failing agents, and nodes that leave, join, or are too many.
#include <algorithm>
#include <cstdlib>
#include <memory>

#include "tests/launch/background.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/free_port.hpp"

using namespace ringsmith::testing;

namespace {

using Words = std::vector<std::string>;

const std::string kSay =
    "echo round $RINGSMITH_ROUND rank $RANK of $WORLD_SIZE on node $GROUP_RANK restart "
    "$TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS job $TORCHELASTIC_RUN_ID; ";
// Returns a script that waits until the test case creates the file.
std::string until(const std::string& file) {
  return "while [ ! -e " + file + " ]; do sleep 0.02; done; ";
}

struct Job {
  Job() { setenv("HOME", folder.path.c_str(), 1); }  // the user's secret is created there
  Background& start(const Words& options, const std::string& script) {
    Words words{kRingrun, "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:" + port};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--", "sh", "-c", "cd " + folder.path.string() + "; " + script});
    running.push_back(std::make_unique<Background>(words));
    const bool static_nodes = std::ranges::find(options, "static") != options.end();
    if (running.size() == 1 && !static_nodes)
      REQUIRE(eventually([&] { return somebody_listens(); }));
    return *running.back();
  }
  // True if a ringrun listens at the port: the first one, which runs the rendezvous.
  [[nodiscard]] bool somebody_listens() const {
    const auto at = static_cast<std::uint16_t>(std::stoi(port));
    std::string why;
    return ringsmith::comm::tcp::connect_to({"127.0.0.1", at},
                                            ringsmith::Deadline::in(std::chrono::seconds(1)), why)
        .valid();
  }
  void make(const std::string& file) const { write_text(folder / file, ""); }
  [[nodiscard]] static bool said(const Background& ringrun, const std::string& text) {
    return eventually([&] { return ringrun.output().find(text) != std::string::npos; });
  }

  TemporaryFolder folder;
  std::string port = free_port();
  std::vector<std::unique_ptr<Background>> running;
};

const Words kOneOrTwo{"--nnodes", "1:2", "--max-restarts", "3", "--last-call", "30"};

}  // namespace

TEST_CASE("after a failure all ranks start again, as often as --max-restarts says", "[rounds]") {
  const std::string script =
      kSay + "[ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT -lt 2 ] && exit 7; exit 0";
  auto r = ringrun_shell({"--standalone", "--nproc-per-node", "2", "--max-restarts", "2"}, script);
  INFO(r.out << r.err);
  CHECK(r.exit_code == 0);
  for (const std::string round : {"0", "1", "2"})
    for (const std::string rank : {"0", "1"})
      CHECK_THAT(r.out, ContainsSubstring("[" + rank + "] round " + round + " rank " + rank +
                                          " of 2 on node 0 restart " + round + "/2 job none\n"));
  CHECK_THAT(r.err, ContainsSubstring("rank 1 failed first: exit code 7") &&
                        ContainsSubstring("ringrun: round 2: 2 ranks on 1 node, restart 2 of 2\n"));
  CHECK(r.err.find("no more are left") == std::string::npos);

  r = ringrun_shell({"--nproc-per-node", "2", "--max_restarts=1"}, script);
  CHECK(r.exit_code == 7);
  CHECK_THAT(r.err, ContainsSubstring("ringrun: that was restart 1 of 1: no more are left\n"));
  r = ringrun_shell({"--nproc-per-node", "2"}, script);
  CHECK(r.exit_code == 7);
  CHECK_THAT(r.err, !ContainsSubstring("ringrun: round"));
}

TEST_CASE("a signal to ringrun is no failure to start again from", "[rounds]") {
  const TemporaryFolder folder;
  Background one({kRingrun, "--max-restarts", "5", "--", "sh", "-c",
                  "cd " + folder.path.string() + "; echo y > ready; exec sleep 100"});
  REQUIRE(eventually([&] { return !read_text(folder / "ready").empty(); }));
  kill(one.pid(), SIGTERM);
  CHECK(one.wait() == 128 + SIGTERM);
  CHECK_THAT(one.output(), !ContainsSubstring("round 1"));
}

TEST_CASE("nothing of a round lives on into the next, wherever it went", "[rounds]") {
  const TemporaryFolder folder;
  const auto r = ringrun_shell(
      {"--max-restarts", "1"},
      "cd " + folder.path.string() +
          "; if [ $RINGSMITH_ROUND = 0 ]; then sleep 300 & echo $! > child; "
          "setsid sh -c 'echo $$ > daemon; sleep 300 & echo $! > daemons.child; wait' & "
          "while [ ! -s daemons.child ]; do sleep 0.02; done; exit 1; fi; "
          "for p in child daemon daemons.child; do kill -0 $(cat $p) && echo $p lives; done; true");
  INFO(r.out << r.err);
  CHECK(r.exit_code == 0);
  CHECK(r.out.empty());
  for (const char* file : {"child", "daemon", "daemons.child"})
    CHECK_FALSE(alive(std::stoi(read_text(folder / file))));
}

TEST_CASE("each round has a port and a secret of its own: an earlier one's ranks cannot join",
          "[rounds]") {
  const TemporaryFolder folder;
  const std::string perf = RINGSMITH_BINARY_DIR "/bin/all_reduce_perf -b 8 -e 8 -n 1 -T ";
  const auto r = ringrun_shell(
      {"--nproc-per-node", "2", "--max-restarts", "1"},
      "cd " + folder.path.string() +
          "; if [ $RINGSMITH_ROUND = 0 ]; then [ $RANK = 1 ] && { env > 0.aside; mv 0.aside 0; "
          "exit "
          "1; }; exec sleep 100; fi; "
          "[ $RANK = 0 ] && exec " +
          perf +
          "30; "
          // First uses round 0's secret at its port, now closed, then at the new store's port.
          "export OLD=$(grep ^RINGSMITH_SECRET= 0) OLD_PORT=$(grep ^MASTER_PORT= 0); "
          "env -u RINGSMITH_STORE_FD $OLD $OLD_PORT " +
          perf +
          "1 && echo joined the old; "
          "env -u RINGSMITH_STORE_FD $OLD " +
          perf +
          "1 && echo joined with the old secret; "
          "env -u RINGSMITH_STORE_FD " +
          perf + "30");
  INFO(r.out << r.err);
  CHECK(r.exit_code == 0);
  CHECK_THAT(r.out, !ContainsSubstring("joined"));
  CHECK_THAT(r.err, ContainsSubstring("no store answered at ") &&
                        ContainsSubstring("its secret is not the job's"));
}

TEST_CASE("a training whose rank is killed goes on from its checkpoint, to the same bytes",
          "[rounds]") {
  const TemporaryFolder folder;
  const std::string train =
      RINGSMITH_BINARY_DIR
      "/bin/train_mlp --draw 200 --hidden 8 --batch 6 --steps 1000 --progress off --no-trace "
      "--save-every 50 --run-dir " +
      folder.path.string();
  const Words two{"--nproc-per-node", "2", "--max-restarts", "1"};
  REQUIRE(ringrun_shell(two, "exec " + train + "/whole").exit_code == 0);
  const auto r = ringrun_shell(
      two, "cd " + folder.path.string() + "; [ $RANK$RINGSMITH_ROUND = 10 ] || exec " + train +
               "/twice --resume auto; " + train +
               "/twice --resume auto & until ls twice/checkpoints/*/manifest.json 2> nowhere; do "
               "sleep 0.01; done; kill -9 $!; exit 9");
  INFO(r.out << r.err);
  CHECK(r.exit_code == 0);
  CHECK_THAT(r.err, ContainsSubstring("rank 1 failed first: exit code 9"));
  CHECK_THAT(r.out, ContainsSubstring("resumed from '"));
  const std::string model = read_text(folder / "whole/model.safetensors");
  CHECK(!model.empty());
  CHECK(read_text(folder / "twice/model.safetensors") == model);
}

TEST_CASE("each round writes log files of its own", "[rounds]") {
  const TemporaryFolder folder;
  CHECK(ringrun_shell({"--max-restarts", "1", "--log-dir", folder / "logs"},
                      "echo $RINGSMITH_ROUND; exit $((1 - RINGSMITH_ROUND))")
            .exit_code == 0);
  CHECK(read_text(folder / "logs/round-0/rank-0.out") == "0\n");
  CHECK(read_text(folder / "logs/round-1/rank-0.out") == "1\n");
}

TEST_CASE("a node is lost and the job goes on; one comes, and it is taken in", "[rounds]") {
  Job job;
  const std::string script = kSay + until("end");
  Words options = kOneOrTwo + Words{"--nproc-per-node", "2", "--rdzv-id", "job1"};
  options[5] = "0.5";  // duration of the last call, in seconds
  const auto& a = job.start(options, script);
  REQUIRE(Job::said(a, "round 0 rank 1 of 2 on node 0 restart 0/3 job job1\n"));
  const auto& b = job.start(options, script);  // after the last call, so it causes a new round
  for (const char* rank : {"2", "3"})
    REQUIRE(Job::said(b, std::string("round 1 rank ") + rank + " of 4 on node 1 restart 0/3"));
  REQUIRE(Job::said(a, "all ranks ended: another node has arrived: pid "));
  for (int times = 1; times <= 2; ++times) {
    const Background& lost = *job.running.back();
    kill(lost.pid(), SIGKILL);
    const std::string round = std::to_string(2 * times);
    const std::string restart = " restart " + std::to_string(times) + "/3";
    REQUIRE(Job::said(a, "round " + round + " rank 1 of 2 on node 0" + restart));
    const auto& again = job.start(options, script);
    const std::string next = std::to_string(2 * times + 1);
    REQUIRE(Job::said(a, "round " + next + " rank 1 of 4 on node 0" + restart));
    REQUIRE(Job::said(again, "round " + next + " rank 3 of 4 on node 1" + restart));
  }
  CHECK_THAT(a.output(), ContainsSubstring("the ringrun of node 1 (pid "));
  job.make("end");
  CHECK(job.running.front()->wait() == 0);
  CHECK(job.running.back()->wait() == 0);
}

TEST_CASE("a rank that fails on one node: both nodes start again, at once, and count it",
          "[rounds]") {
  Job job;
  const std::string script =
      kSay +
      "[ $RANK = 1 ] && [ $RINGSMITH_ROUND -lt 2 ] && exit 9; [ $RINGSMITH_ROUND = 2 ]  || "
      "exec sleep 100";
  for (int i = 0; i < 2; ++i) job.start(kOneOrTwo, script);
  for (const auto& r : job.running) CHECK(r->wait() == 0);
  for (const auto& r : job.running)
    CHECK_THAT(r->output(), ContainsSubstring("rank 1 failed first: exit code 9") &&
                                ContainsSubstring("round 2: 2 ranks on 2 nodes, restart 2 of 3"));

  Job hopeless;
  for (int i = 0; i < 2; ++i)
    hopeless.start({"--nnodes", "2", "--max-restarts", "1"}, "[ $RANK = 1 ] && exit 9; sleep 100");
  for (const auto& r : hopeless.running) {
    CHECK(r->wait() == 9);
    CHECK_THAT(r->output(), ContainsSubstring("round 1: "));
  }
  CHECK_THAT(hopeless.running[0]->output() + hopeless.running[1]->output(),
             ContainsSubstring("no more are left") &&
                 ContainsSubstring("the job is over: no restarts are left"));
}

TEST_CASE("the ringrun that holds the rendezvous is lost, and the job with it", "[rounds]") {
  Job job;
  const auto& a = job.start(kOneOrTwo, kSay + "exec sleep 100");
  const auto& b = job.start(kOneOrTwo, kSay + "exec sleep 100");
  REQUIRE(Job::said(a, "of 2 on node 0"));
  REQUIRE(Job::said(b, "of 2 on node 1"));
  kill(job.running[0]->pid(), SIGKILL);
  CHECK(job.running[1]->wait() == 3);
  CHECK_THAT(b.output(), ContainsSubstring("the ringrun that holds the rendezvous at 127.0.0.1:" +
                                           job.port + " is lost, and the job with it"));
}

TEST_CASE("a signal to one ringrun: a node leaves; to the holder: the job ends", "[rounds]") {
  Job job;
  const auto& a = job.start(kOneOrTwo, kSay + until("end"));
  const auto& b = job.start(kOneOrTwo, kSay + until("end"));
  REQUIRE(Job::said(b, "of 2 on node 1"));
  REQUIRE(Job::said(a, "of 2 on node 0"));
  kill(job.running[1]->pid(), SIGTERM);
  CHECK(job.running[1]->wait() == 128 + SIGTERM);
  REQUIRE(Job::said(a, "ringrun on node 1 got SIGTERM"));
  const auto& c = job.start(kOneOrTwo, kSay + until("end"));  // within the last call
  REQUIRE(Job::said(c, "round 1 rank 1 of 2 on node 1 restart 1/3"));
  kill(job.running[0]->pid(), SIGINT);
  CHECK(job.running[0]->wait() == 128 + SIGINT);
  CHECK(job.running[2]->wait() != 0);
  CHECK_THAT(c.output(), ContainsSubstring("ringrun on node 0 got SIGINT"));
}

TEST_CASE("one node too many waits for a place", "[rounds]") {
  Job job;
  const Words two{"--nnodes", "2", "--max-restarts", "1"};
  for (int i = 0; i < 2; ++i) job.start(two, kSay + until("end"));
  for (const std::size_t i : {0, 1}) REQUIRE(Job::said(*job.running[i], "round 0 rank "));
  const auto& spare = job.start(two, kSay + until("end"));
  const bool second_is_1 = job.running[1]->output().find("on node 1") != std::string::npos;
  kill(job.running[second_is_1 ? 1 : 0]->pid(), SIGKILL);
  REQUIRE(Job::said(spare, "round 1 rank 1 of 2 on node 1 restart 1/1"));
  const auto& unneeded = job.start(two, "true");
  REQUIRE(Job::said(unneeded, "waiting for a place at the rendezvous at "));
  job.make("end");
  CHECK(job.running[3]->wait() == 0);
  CHECK_THAT(unneeded.output(), ContainsSubstring("the job is over: all ranks succeeded"));
  CHECK(job.running[2]->wait() == 0);
}

TEST_CASE("given node ranks stay: a job of a fixed size waits for the node that was lost",
          "[rounds]") {
  Job job;
  const auto start = [&](int node) -> Background& {
    return job.start({"--rdzv-backend", "static", "--nnodes", "3", "--max-restarts", "1",
                      "--node-rank", std::to_string(node)},
                     kSay + until("end"));
  };
  for (const int node : {2, 1, 0}) start(node);
  for (const std::size_t i : {0, 1, 2})
    REQUIRE(Job::said(*job.running[i], "on node " + std::to_string(2 - i)));
  kill(job.running[1]->pid(), SIGKILL);
  const auto& again = start(1);
  REQUIRE(Job::said(again, "round 1 rank 1 of 3 on node 1 restart 1/1"));
  REQUIRE(Job::said(*job.running[0], "round 1 rank 2 of 3 on node 2 restart 1/1"));
  job.make("end");
  for (const std::size_t i : {0, 2, 3}) CHECK(job.running[i]->wait() == 0);
}

TEST_CASE("too few nodes: one line that names what is missing, at the deadline", "[rounds]") {
  Job job;
  const Words options{"--nnodes", "2:3", "--max-restarts", "2", "--join-timeout", "1"};
  const auto& a = job.start(options, "true");
  CHECK(job.running[0]->wait() == 4);
  CHECK_THAT(a.output(), ContainsSubstring("1 of at least 2 nodes reached the rendezvous at ") &&
                             ContainsSubstring(" within 1 s (this one, pid "));
  Job fixed;
  const auto& b = fixed.start(
      {"--rdzv-backend", "static", "--nnodes", "3", "--max-restarts", "1", "--join-timeout", "1"},
      "true");
  CHECK(fixed.running[0]->wait() == 4);
  CHECK_THAT(b.output(), ContainsSubstring(": node 1, node 2 never arrived"));
}

TEST_CASE("nodes that contradict each other, strangers, other jobs: one line, and no harm",
          "[rounds]") {
  Job job;
  const Words options{"--nnodes",  "2:3", "--max-restarts", "2",
                      "--rdzv-id", "a",   "--last-call",    "0.2"};
  const auto& a = job.start(options, kSay + until("end"));
  REQUIRE(eventually([&] { return std::filesystem::exists(job.folder / ".ringsmith-secret"); }));
  const TemporaryFolder other;
  REQUIRE(ringrun({"--make-secret", other / "secret"}).exit_code == 0);
  struct Wrong {
    Words more;
    std::string says;
  };
  for (const Wrong& wrong :
       {Wrong{{"--nnodes", "2"}, "--nnodes 2 --max-restarts 2 on pid "},
        Wrong{{"--max-restarts", "1"}, "--nnodes 2:3 --max-restarts 1 on pid "},
        Wrong{{"--rdzv-backend", "static", "--nnodes", "2", "--node-rank", "1"},
              "use the same values on all nodes"},
        Wrong{{"--rdzv-id", "b"}, "refused this process: its secret is not the job's"},
        Wrong{{"--secret-file", other / "secret"}, "refused this process"},
        Wrong{{"--no-secret"}, "refused this process"}}) {
    const auto& r = job.start(options + wrong.more, "echo ran");
    INFO(wrong.says << "\n" << r.output());
    CHECK(job.running.back()->wait() == 3);
    CHECK_THAT(r.output(), ContainsSubstring(wrong.says) && !ContainsSubstring("ran\n"));
  }
  job.start(options, kSay + until("end"));
  REQUIRE(Job::said(a, "round 0 rank 0 of 2"));
  job.make("end");
  CHECK(job.running.front()->wait() == 0);
  CHECK(job.running.back()->wait() == 0);

  Job twice;
  const Words fixed{"--rdzv-backend", "static", "--nnodes", "3", "--max-restarts", "1"};
  twice.start(fixed, "true");
  for (int i = 0; i < 2; ++i) twice.start(fixed + Words{"--node-rank", "1"}, "true");
  CHECK(eventually([&] {
    return (twice.running[1]->output() + twice.running[2]->output())
               .find("--node-rank 1 was given twice: to pid ") != std::string::npos;
  }));
  twice.start(fixed + Words{"--node-rank", "2"}, "true");
  CHECK(twice.running[0]->wait() == 0);
}

TEST_CASE("the tutorials' command lines run as they are written", "[rounds]") {
  const std::string head = kRingrun + " ";
  const std::string shell = " sh -c '" + kSay + "echo \"$@\"' train.py --batch_size=128";
  const auto run = [&](const std::vector<std::string>& lines, int world) {
    const TemporaryFolder home;
    std::vector<std::unique_ptr<Background>> running;
    for (const std::string& line : lines)
      running.push_back(std::make_unique<Background>(
          Words{"/usr/bin/env", "HOME=" + home.path.string(), "sh", "-c", head + line + shell}));
    std::string all;
    for (const auto& r : running) {
      CHECK(r->wait() == 0);
      all += r->output();
    }
    INFO(lines[0] << "\n" << all);
    for (int rank = 0; rank < world; ++rank)
      CHECK_THAT(all, ContainsSubstring("[" + std::to_string(rank) + "] --batch_size=128\n") &&
                          ContainsSubstring("rank " + std::to_string(rank) + " of " +
                                            std::to_string(world) + " "));
  };
  const std::string p = free_port(), q = free_port();
  run({"--nproc_per_node=4"}, 4);
  run({"--standalone --nnodes=1 --nproc_per_node=2"}, 2);
  run({"--nnodes=2 --nproc_per_node=2 --node_rank=0 --master_addr=127.0.0.1 --master_port=" + p,
       "--nnodes=2 --nproc_per_node=2 --node_rank=1 --master_addr=127.0.0.1 --master_port=" + p},
      4);
  const std::string slurm =
      "--nnodes 2 --nproc_per_node 1 --rdzv_id 10 --rdzv_backend c10d --rdzv_endpoint 127.0.0.1:" +
      q;
  run({slurm, slurm}, 2);
  const std::string elastic =
      "--nnodes=2:4 --nproc_per_node=1 --max_restarts=3 --rdzv_id=job123 --rdzv_backend=c10d "
      "--rdzv_conf=last_call_timeout=1 --rdzv_endpoint=localhost:" +
      free_port();
  run({elastic, elastic}, 2);
  // Uses the default ports. No host has an address in 192.0.2.0/24 (RFC 5737).
  const Words nobody{"--no-secret", "--join-timeout", "0.2", "true"};
  const auto fixed = ringrun(
      Words{"--nnodes=2", "--node_rank=1", "--master_addr=192.0.2.1", "--nproc_per_node=1"} +
      nobody);
  CHECK(fixed.exit_code == 4);
  CHECK_THAT(fixed.err, ContainsSubstring("no store answered at 192.0.2.1:29500 within"));
  const auto met =
      ringrun(Words{"--nnodes=2", "--rdzv_backend=c10d", "--rdzv_endpoint=192.0.2.1"} + nobody);
  CHECK(met.exit_code == 4);
  CHECK_THAT(met.err, ContainsSubstring("no store answered at 192.0.2.1:29400 within") &&
                          ContainsSubstring("no ringrun holds the rendezvous there"));
}
