#include <algorithm>
#include <map>

#include "runtime/job/launch/process.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::launch;

namespace {

std::map<std::string, std::string> variables(const std::vector<std::string>& inherited,
                                             const RankPlace& place) {
  std::map<std::string, std::string> out;
  for (const std::string& v : rank_environment(inherited, place, {"10.0.0.1", 29500, "hush"})) {
    const std::size_t equals = v.find('=');
    REQUIRE(equals != std::string::npos);
    CHECK(out.emplace(v.substr(0, equals), v.substr(equals + 1)).second);  // each name once
  }
  return out;
}

const RankPlace kPlace{5, 8, 1, 4, 1, 2, 6, 2, 3, "job1"};

}  // namespace

TEST_CASE("a rank is told its place and where the store is", "[environment]") {
  const auto v = variables({"PATH=/bin", "EMPTY="}, kPlace);
  const std::map<std::string, std::string> expected{{"PATH", "/bin"},
                                                    {"EMPTY", ""},
                                                    {"RANK", "5"},
                                                    {"WORLD_SIZE", "8"},
                                                    {"LOCAL_RANK", "1"},
                                                    {"LOCAL_WORLD_SIZE", "4"},
                                                    {"GROUP_RANK", "1"},
                                                    {"GROUP_WORLD_SIZE", "2"},
                                                    {"MASTER_ADDR", "10.0.0.1"},
                                                    {"MASTER_PORT", "29500"},
                                                    {"RINGSMITH_ROUND", "6"},
                                                    {"TORCHELASTIC_RESTART_COUNT", "2"},
                                                    {"TORCHELASTIC_MAX_RESTARTS", "3"},
                                                    {"TORCHELASTIC_RUN_ID", "job1"},
                                                    {"RINGSMITH_STORE", "launcher"},
                                                    {"RINGSMITH_SECRET", "hush"},
                                                    {"OMP_NUM_THREADS", "1"}};
  CHECK(v == expected);
}

TEST_CASE("what another launcher left is replaced or dropped", "[environment]") {
  const auto v =
      variables({"RANK=77", "MASTER_PORT=1", "RINGSMITH_SECRET=old", "RINGSMITH_SECRET_FILE=/old",
                 "RINGSMITH_MEETING_DIR=/old", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=1",
                 "PMIX_RANK=1", "PMI_SIZE=2", "OMPI_MCA_btl=tcp", "SLURM_PROCID=3"},
                kPlace);
  CHECK(v.at("RANK") == "5");
  CHECK(v.at("MASTER_PORT") == "29500");
  CHECK(v.at("RINGSMITH_SECRET") == "hush");
  for (const char* gone : {"RINGSMITH_SECRET_FILE", "RINGSMITH_MEETING_DIR", "OMPI_COMM_WORLD_SIZE",
                           "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_SIZE"})
    CHECK(v.count(gone) == 0);
  CHECK(variables({"RINGSMITH_STORE_FD=7:1"}, kPlace).count("RINGSMITH_STORE_FD") == 0);
  CHECK(v.at("OMPI_MCA_btl") == "tcp");
  CHECK(v.at("SLURM_PROCID") == "3");  // env takes precedence over slurm
}

TEST_CASE("a rank is told of the door that it inherits, and of no other", "[environment]") {
  const auto v =
      rank_environment({"RINGSMITH_STORE_FD=7:1"}, kPlace, {"10.0.0.1", 29500, "hush", "9:4711"});
  CHECK(std::count(v.begin(), v.end(), "RINGSMITH_STORE_FD=9:4711") == 1);
  CHECK(std::count(v.begin(), v.end(), "RINGSMITH_STORE_FD=7:1") == 0);
}

TEST_CASE("OMP_NUM_THREADS is 1 where ranks share a node and nobody chose", "[environment]") {
  CHECK(variables({"OMP_NUM_THREADS=3"}, kPlace).at("OMP_NUM_THREADS") == "3");
  CHECK(variables({}, kPlace).at("OMP_NUM_THREADS") == "1");
  CHECK(variables({}, {0, 2, 0, 1, 0, 2}).count("OMP_NUM_THREADS") == 0);
}
