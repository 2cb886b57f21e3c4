// Tests jobs on several nodes, each a ringrun on this host with its own --node-rank. They find node
// 0's port in a file, so that tests do not compete for a port.
#include <memory>
#include <sys/stat.h>

#include "tests/launch/background.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::testing;

namespace {

using Words = std::vector<std::string>;

struct Job {
  Job() { REQUIRE(ringrun({"--make-secret", folder / "secret"}).exit_code == 0); }
  [[nodiscard]] Words words(int node, int nodes, const Words& options,
                            const std::string& script) const {
    Words out{kRingrun,
              "--nnodes",
              std::to_string(nodes),
              "--node-rank",
              std::to_string(node),
              "--port-file",
              folder / "port",
              "--secret-file",
              folder / "secret",
              "--join-timeout",
              "30"};
    out.insert(out.end(), options.begin(), options.end());
    out.insert(out.end(), {"--", "sh", "-c", "cd " + folder.path.string() + "; " + script});
    return out;
  }
  void start(int node, int nodes, const Words& options, const std::string& script) {
    running.push_back(std::make_unique<Background>(words(node, nodes, options, script)));
  }
  [[nodiscard]] std::vector<int> wait() const {
    std::vector<int> codes;
    for (const auto& r : running) codes.push_back(r->wait());
    return codes;
  }
  [[nodiscard]] std::string output(std::size_t i) const { return running[i]->output(); }

  TemporaryFolder folder;
  std::vector<std::unique_ptr<Background>> running;
};

Words ranks(int n) { return {"--nproc-per-node", std::to_string(n)}; }

const std::string kPlaceScript =
    "echo $RANK/$WORLD_SIZE local $LOCAL_RANK/$LOCAL_WORLD_SIZE node $GROUP_RANK/$GROUP_WORLD_SIZE";

}  // namespace

TEST_CASE("ranks are numbered through, whether nodes have the same number of them or not",
          "[nodes]") {
  for (const std::vector<int>& sizes : {std::vector<int>{2, 2}, {3, 1, 2}}) {
    Job job;
    const int nodes = static_cast<int>(sizes.size());
    for (int n = nodes - 1; n >= 0; --n)  // node 0 starts last
      job.start(n, nodes, ranks(sizes[static_cast<std::size_t>(n)]), kPlaceScript);
    for (const int code : job.wait()) CHECK(code == 0);
    std::string all;
    for (std::size_t i = 0; i < sizes.size(); ++i) all += job.output(i);
    INFO(all);
    int world = 0, rank = 0;
    for (const int size : sizes) world += size;
    for (int n = 0; n < nodes; ++n)
      for (int local = 0; local < sizes[static_cast<std::size_t>(n)]; ++local, ++rank)
        CHECK_THAT(
            all, ContainsSubstring("[" + std::to_string(rank) + "] " + std::to_string(rank) + "/" +
                                   std::to_string(world) + " local " + std::to_string(local) + "/" +
                                   std::to_string(sizes[static_cast<std::size_t>(n)]) + " node " +
                                   std::to_string(n) + "/" + std::to_string(nodes) + "\n"));
    CHECK_FALSE(std::filesystem::exists(job.folder / "port"));
  }
}

TEST_CASE("a failure on one node ends all, and every node tells the same story", "[nodes]") {
  for (const int culprit : {0, 2}) {
    Job job;
    const std::string script = "[ $RANK = " + std::to_string(culprit) +
                               " ] && { sleep 0.2; echo boom; exit 7; }; exec sleep 100";
    for (const int n : {0, 1}) job.start(n, 2, ranks(2), script);
    const auto codes = job.wait();
    for (const std::size_t n : {0, 1}) {
      INFO(job.output(n));
      CHECK(codes[n] == 7);
      CHECK_THAT(
          job.output(n),
          ContainsSubstring("rank " + std::to_string(culprit) + " failed first: exit code 7") &&
              ContainsSubstring("node " + std::to_string(culprit / 2) + ", ") &&
              ContainsSubstring("    boom"));
    }
  }
}

TEST_CASE("a culprit on one node goes before witnesses on the other", "[nodes]") {
  // Rank 3, the culprit, ends after rank 0, the witness, whose end closes the pipe.
  Job job;
  REQUIRE(mkfifo((job.folder / "fifo").c_str(), 0600) == 0);
  for (const int n : {0, 1})
    job.start(n, 2, ranks(2),
              "case $RANK in 0) echo y > fifo; exit 3;; 3) while read y; do :; done < fifo; "
              "kill -ABRT $$;; esac; exec sleep 100");
  for (const int code : job.wait()) CHECK(code == 134);
  for (const std::size_t n : {0, 1})
    CHECK_THAT(job.output(n), ContainsSubstring("rank 3 failed first: signal 6 (SIGABRT)"));
}

TEST_CASE("a node that never comes is named", "[nodes]") {
  Job job;
  for (const int n : {0, 2}) job.start(n, 3, {"--join-timeout", "2"}, "true");
  for (const int code : job.wait()) CHECK(code == 4);
  for (const std::size_t i : {0, 1})
    CHECK_THAT(job.output(i), ContainsSubstring("node 1 never arrived"));
  Job alone;
  alone.start(1, 2, {"--join-timeout", "0.3"}, "true");
  CHECK(alone.wait()[0] == 4);
  CHECK_THAT(alone.output(0), ContainsSubstring("node 0 never started"));
}

TEST_CASE("nodes that contradict each other end at once, with both named", "[nodes]") {
  {
    Job job;
    job.start(0, 2, {}, "true");
    job.start(1, 3, {}, "true");
    for (const int code : job.wait()) CHECK(code == 3);
    for (const std::size_t n : {0, 1})
      CHECK_THAT(job.output(n), ContainsSubstring("the nodes disagree: --nnodes is "));
  }
  {
    Job job;
    for (const int n : {0, 1, 1}) job.start(n, 3, {}, "true");
    for (const int code : job.wait()) CHECK(code == 3);
    for (const std::size_t i : {0, 1, 2})
      CHECK_THAT(job.output(i), ContainsSubstring("node 1 was given twice: to pid "));
  }
}

TEST_CASE("another secret, another job on the port, a left-over port file", "[nodes]") {
  Job job;
  job.start(0, 2, {}, "true");
  REQUIRE(eventually([&] { return !read_text(job.folder / "port").empty(); }));
  const std::string port =
      read_text(job.folder / "port").substr(0, read_text(job.folder / "port").find('\n'));
  const TemporaryFolder other;
  REQUIRE(ringrun({"--make-secret", other / "secret"}).exit_code == 0);
  auto r = run_program({kRingrun, "--nnodes", "2", "--node-rank", "1", "--master-port", port,
                        "--secret-file", other / "secret", "--", "true"});
  CHECK(r.exit_code == 3);
  CHECK_THAT(r.err, ContainsSubstring("refused this process") && ContainsSubstring("another job"));
  r = run_program({kRingrun, "--nnodes", "2", "--master-port", port, "--secret-file",
                   other / "secret", "--", "true"});
  CHECK(r.exit_code == 6);
  CHECK_THAT(r.err, ContainsSubstring("another program listens there"));
  r = run_program(job.words(0, 2, {}, "true"));
  CHECK(r.exit_code == 6);
  CHECK_THAT(r.err, ContainsSubstring("is another job using it?"));
  job.start(1, 2, {}, "true");
  for (const int code : job.wait()) CHECK(code == 0);
}

TEST_CASE("the death of one node's ringrun ends the others, and is named", "[nodes]") {
  for (const std::size_t victim : {0, 1}) {
    Job job;
    for (const int n : {0, 1})
      job.start(n, 2, {}, "echo $$ > pid.$RANK; sleep 100 & echo $! > child.$RANK; wait");
    REQUIRE(eventually([&] {
      return !read_text(job.folder / "child.0").empty() &&
             !read_text(job.folder / "child.1").empty();
    }));
    kill(job.running[victim]->pid(), SIGKILL);
    const std::size_t survivor = 1 - victim;
    CHECK(job.running[survivor]->wait() == 3);
    const std::string said = job.output(survivor);
    CHECK_THAT(said, ContainsSubstring(victim == 0 ? "node 0 is unreachable"
                                                   : "the ringrun of node 1 (pid "));
    CHECK(job.running[victim]->wait() == 128 + SIGKILL);
    for (const char* file : {"pid.0", "pid.1", "child.0", "child.1"}) {
      const pid_t pid = std::stoi(read_text(job.folder / file));
      CHECK(eventually([pid] { return !alive(pid); }));
    }
  }
}

TEST_CASE("a signal to one node's ringrun ends the whole job", "[nodes]") {
  Job job;
  for (const int n : {0, 1}) job.start(n, 2, {}, "echo y > ready.$RANK; exec sleep 100");
  REQUIRE(eventually([&] {
    return !read_text(job.folder / "ready.0").empty() && !read_text(job.folder / "ready.1").empty();
  }));
  kill(job.running[1]->pid(), SIGTERM);
  const auto codes = job.wait();
  CHECK(codes[1] == 128 + SIGTERM);
  CHECK(codes[0] == 1);
  CHECK_THAT(job.output(0), ContainsSubstring("ringrun on node 1 got SIGTERM"));
}

TEST_CASE("a node ends within seconds, by a signal or a failure, though the other one is silent",
          "[nodes]") {
  using std::chrono::steady_clock;
  for (const std::size_t silent : {0, 1})
    for (const bool fails : {false, true}) {
      Job job;
      const std::size_t other = 1 - silent;
      for (const int n : {0, 1})
        job.start(n, 2, {},
                  "echo y > ready.$RANK; until [ -e fail.$RANK ]; do sleep 0.02; done; "
                  "exit 9");
      for (const char* file : {"ready.0", "ready.1"})
        REQUIRE(eventually([&] { return !read_text(job.folder / file).empty(); }));
      kill(job.running[silent]->pid(), SIGSTOP);
      const auto begin = steady_clock::now();
      if (fails)
        write_text(job.folder / ("fail." + std::to_string(other)), "");
      else
        kill(job.running[other]->pid(), SIGTERM);
      const int code = job.running[other]->wait();
      const auto took = steady_clock::now() - begin;
      INFO("node " << silent << " is silent\n" << job.output(other));
      CHECK(code == (fails ? 9 : 128 + SIGTERM));
      CHECK(took < std::chrono::seconds(9));
      kill(job.running[silent]->pid(), SIGCONT);
      CHECK(job.running[silent]->wait() > 0);
    }
}

TEST_CASE("a node whose ranks have ended waits for the others, but not forever", "[nodes]") {
  {
    Job job;
    for (const int n : {0, 1}) job.start(n, 2, {}, "[ $RANK = 0 ] || sleep 0.5");
    for (const int code : job.wait()) CHECK(code == 0);
  }
  Job job;
  for (const int n : {0, 1})
    job.start(n, 2, {"--exit-timeout", "0.3"}, "[ $RANK = 0 ] || exec sleep 100");
  for (const int code : job.wait()) CHECK(code == 1);
  for (const std::size_t n : {0, 1})
    CHECK_THAT(job.output(n), ContainsSubstring("node 1 still ran"));
}

TEST_CASE("nodes may share a log folder", "[nodes]") {
  Job job;
  for (const int n : {0, 1}) job.start(n, 2, {"--log-dir", job.folder / "logs"}, "echo $RANK");
  for (const int code : job.wait()) CHECK(code == 0);
  CHECK(read_text(job.folder / "logs/node-0/rank-0.out") == "0\n");
  CHECK(read_text(job.folder / "logs/node-1/rank-1.out") == "1\n");
}
