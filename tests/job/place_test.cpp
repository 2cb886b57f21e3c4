#include "runtime/job/place.hpp"

#include <map>

#include "runtime/base/error.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;

namespace {

using Variables = std::map<std::string, std::string>;

Environment environment(const Variables& variables) {
  return [&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

JobPlace place(BootstrapKind kind, const Variables& variables) {
  return find_place(kind, environment(variables));
}

constexpr auto kAuto = BootstrapKind::automatic;

const Variables kEnv{
    {"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}};
const Variables kSlurm{{"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "1"},
                       {"SLURM_PROCID", "3"},  {"SLURM_STEP_NUM_TASKS", "8"},
                       {"SLURM_LOCALID", "1"}, {"SLURM_STEP_NODELIST", "gpu[08-11,20]"}};

Variables operator+(Variables a, const Variables& b) {
  for (const auto& [name, value] : b) a[name] = value;
  return a;
}
Variables operator-(Variables a, const std::string& name) {
  a.erase(name);
  return a;
}

}  // namespace

TEST_CASE("auto takes what the environment shows", "[place]") {
  struct Row {
    Variables variables;
    BootstrapKind kind;
  };
  const Variables mpi{{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "1"}};
  const Variables file{
      {"RINGSMITH_MEETING_DIR", "/shared/job"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}};
  // The batch script of sbatch is not a task of a step.
  const Variables batch{{"SLURM_JOB_ID", "77"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}};
  for (const Row& row :
       {Row{{}, BootstrapKind::self}, Row{mpi, BootstrapKind::mpi}, Row{kEnv, BootstrapKind::env},
        Row{kSlurm, BootstrapKind::slurm}, Row{file, BootstrapKind::file},
        Row{batch, BootstrapKind::self}, Row{kSlurm + mpi, BootstrapKind::mpi},
        Row{kSlurm + kEnv, BootstrapKind::env}, Row{kEnv + mpi, BootstrapKind::mpi},
        Row{kEnv + file, BootstrapKind::file},
        Row{kSlurm + Variables{{"PMIX_RANK", "3"}}, BootstrapKind::mpi},
        Row{batch + kEnv, BootstrapKind::env}})
    CHECK(place(kAuto, row.variables).kind == row.kind);
  CHECK(place(BootstrapKind::self, kEnv).kind == BootstrapKind::self);
  CHECK(place(BootstrapKind::slurm, kSlurm + kEnv).kind == BootstrapKind::slurm);
}

TEST_CASE("env: rank, world and the store's address", "[place]") {
  const JobPlace p = place(kAuto, kEnv);
  CHECK(p.rank == 2);
  CHECK(p.world == 4);
  CHECK(p.store.str() == "10.0.0.1:29500");
  CHECK(p.bind == "10.0.0.1");
  CHECK_FALSE(p.launcher_holds_store);
  const JobPlace q =
      place(kAuto, kEnv + Variables{{"RINGSMITH_STORE", "launcher"}, {"RINGSMITH_BIND", "eth0"}});
  CHECK(q.launcher_holds_store);
  CHECK(q.bind == "eth0");
}

TEST_CASE("slurm: the first host of the step, and a port of the job's own", "[place]") {
  const JobPlace p = place(kAuto, kSlurm);
  CHECK(p.rank == 3);
  CHECK(p.world == 8);
  CHECK(p.store.host == "gpu08");
  CHECK(p.store.port == 20'000 + 77 * 7 + 1);
  CHECK(place(kAuto, kSlurm + Variables{{"SLURM_STEP_RESV_PORTS", "12003-12006"}}).store.port ==
        12003);
  const JobPlace q =
      place(kAuto, kSlurm + Variables{{"MASTER_ADDR", "ib0.gpu08"}, {"MASTER_PORT", "1234"}});
  CHECK(q.store.str() == "ib0.gpu08:1234");
  CHECK(q.kind == BootstrapKind::slurm);
}

TEST_CASE("slurm's lists of hosts", "[place]") {
  for (const auto& [list, first] : std::map<std::string, std::string>{{"node1", "node1"},
                                                                      {"a,b", "a"},
                                                                      {"n[1-3]", "n1"},
                                                                      {"n[007,9]", "n007"},
                                                                      {"n[5]", "n5"},
                                                                      {"n[1-3],m[4-5]", "n1"},
                                                                      {"n[1-2]-ib,x", "n1-ib"}})
    CHECK(first_host(list) == first);
  CHECK_THROWS_WITH(first_host("n[1"), ContainsSubstring("'n[1'"));
}

TEST_CASE("variables set by halves, or wrong: one line naming them and the remedy", "[place]") {
  struct Row {
    BootstrapKind kind;
    Variables variables;
    std::vector<std::string> says;
  };
  const auto env = BootstrapKind::env;
  const std::vector<Row> rows = {
      {kAuto, kEnv - "RANK", {"not RANK:", "WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set"}},
      {kAuto, kEnv - "WORLD_SIZE", {"not WORLD_SIZE", "ringrun", "--bootstrap self"}},
      {kAuto, kEnv - "MASTER_ADDR", {"not MASTER_ADDR"}},
      {kAuto, kEnv - "MASTER_PORT", {"not MASTER_PORT"}},
      {kAuto, {{"RANK", "0"}}, {"RANK is set", "not WORLD_SIZE, MASTER_ADDR and MASTER_PORT"}},
      {kAuto, {{"MASTER_PORT", "1"}}, {"MASTER_PORT is set", "RANK, WORLD_SIZE and MASTER_ADDR"}},
      {env, {}, {"expected in the environment", "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"}},
      {env, kEnv + Variables{{"RANK", "4"}}, {"RANK is 4", "WORLD_SIZE is 4"}},
      {env, kEnv + Variables{{"RANK", "-1"}}, {"RANK is '-1'", "from 0"}},
      {env, kEnv + Variables{{"RANK", "two"}}, {"'two'"}},
      {env, kEnv + Variables{{"RANK", ""}}, {"RANK is ''"}},
      {env, kEnv + Variables{{"RANK", "1x"}}, {"'1x'"}},
      {env, kEnv + Variables{{"WORLD_SIZE", "0"}}, {"WORLD_SIZE is '0'", "from 1"}},
      {env, kEnv + Variables{{"WORLD_SIZE", "99999999999"}}, {"WORLD_SIZE"}},
      {env, kEnv + Variables{{"MASTER_ADDR", ""}}, {"MASTER_ADDR is empty"}},
      {env, kEnv + Variables{{"MASTER_PORT", "99999"}}, {"MASTER_PORT '99999'", "65535"}},
      {env, kEnv + Variables{{"MASTER_PORT", "0"}}, {"MASTER_PORT '0'"}},
      {kAuto, kSlurm - "SLURM_PROCID", {"--bootstrap slurm", "SLURM_PROCID"}},
      {BootstrapKind::slurm, {}, {"SLURM_JOB_ID"}},
      {kAuto, kSlurm + Variables{{"SLURM_PROCID", "8"}}, {"SLURM_PROCID is '8'"}},
      {kAuto, {{"RINGSMITH_MEETING_DIR", "/x"}, {"RANK", "0"}}, {"not WORLD_SIZE"}},
      {BootstrapKind::file, kEnv, {"not RINGSMITH_MEETING_DIR"}},
  };
  for (const Row& row : rows) {
    std::string text;
    try {
      place(row.kind, row.variables);
    } catch (const UsageError& e) {
      text = e.what();
    }
    INFO(text);
    CHECK_FALSE(text.empty());
    CHECK(text.find('\n') == std::string::npos);
    for (const std::string& says : row.says) CHECK_THAT(text, ContainsSubstring(says));
  }
}

TEST_CASE("hints need nothing to be complete", "[place]") {
  CHECK(rank_hint(environment({})) == 0);
  const Variables slurm = kSlurm, ours{{"RANK", "5"}, {"LOCAL_RANK", "1"}},
                  mpi{{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "2"}};
  CHECK(rank_hint(environment(slurm)) == 3);
  CHECK(local_rank_hint(environment(slurm)) == 1);
  CHECK(rank_hint(environment(ours)) == 5);
  CHECK(local_rank_hint(environment(ours)) == 1);
  CHECK(rank_hint(environment(mpi)) == 2);
  CHECK(local_rank_hint(environment(mpi)) == 2);
}

TEST_CASE("names of bootstraps parse, and unknown ones name the choices", "[place]") {
  for (const char* name : {"auto", "mpi", "env", "slurm", "file", "self"})
    CHECK(name_of(parse_bootstrap(name)) == name);
  CHECK_THROWS_WITH(parse_bootstrap("tcp"),
                    ContainsSubstring("'tcp'") && ContainsSubstring("auto, mpi, env, slurm, file"));
}
