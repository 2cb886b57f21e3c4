// What ringrun refuses: each with one line that names the input and the remedy.
#include <algorithm>
#include <cstdlib>

#include "tests/launch/ringrun.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::testing;

namespace {

using Words = std::vector<std::string>;

struct Refusal {
  Words words;
  const char* says;
};

const std::vector<Refusal> kRefusals = {
    {{}, "no program to start"},
    {{"--standalone"}, "no program to start"},
    {{"no-such-program-here"}, "cannot find the program 'no-such-program-here'"},
    {{"./no-such-program"}, "cannot run './no-such-program'"},
    {{"/tmp"}, "not an executable file"},
    {{"--nproc-per-node", "0", "true"}, "'0' is not a whole number from 1"},
    {{"--nproc-per-node", "four", "true"}, "'four': give a number, or auto or cpu"},
    {{"--nproc-per-node", "gpu", "true"}, "'gpu'"},
    {{"--nproc-per-node", "-1", "true"}, "'-1'"},
    {{"--nprocs", "2", "true"}, "unknown option '--nprocs'"},
    {{"--nnodes", "1:2", "true"}, "must be fixed"},
    {{"--nnodes", "0", "true"}, "'0'"},
    {{"--nnodes", "2", "--node-rank", "2", "true"}, "--node-rank 2 is not one of 2 nodes"},
    {{"--nnodes", "2", "true"}, "--master-port"},
    {{"--nnodes", "2", "--master-port", "1", "true"}, "share a secret"},
    {{"--standalone", "--nnodes", "2", "true"}, "--standalone is for one node"},
    {{"--standalone", "--master-port", "7", "true"}, "--standalone is for one node"},
    {{"--master-port", "99999", "true"}, "'99999' is not a port"},
    {{"--master-addr", "192.0.2.1", "true"}, "not an address of this host"},
    {{"--bind", "no-such-interface.invalid", "true"}, "'no-such-interface.invalid'"},
    {{"--bind", "no-such-interface.invalid", "true"}, "an interface of this one, which has "},
    {{"--bind", "fe80::1", "true"}, "needs its interface"},
    {{"--tee", "true"}, "--tee needs --log-dir"},
    {{"--secret-file", "/no/such/file", "true"}, "/no/such/file"},
    {{"--grace", "-1", "true"}, "--grace: '-1' is not a number from 0 to 1000000;"},
    {{"--grace", "nan", "true"}, "'nan' is not a number"},
    {{"--join-timeout", "0", "true"}, "'0' is not a number from 0.001 to 1000000;"},
    {{"--exit-timeout", "1e300", "true"}, "'1e300'"},
    {{"--node-rank", "", "true"}, "'' is not a whole number from 0 to 1023;"},
    {{"--node-rank", "010", "true"}, "'010'"},
    {{"--log-dir", "/proc/nowhere", "true"}, "/proc/nowhere"},
};

}  // namespace

TEST_CASE("a table of refusals: one line with the remedy, exit code 6", "[ringrun]") {
  unsetenv("RINGSMITH_SECRET");
  unsetenv("RINGSMITH_SECRET_FILE");
  for (const Refusal& refusal : kRefusals) {
    const auto r = ringrun(refusal.words);
    INFO(refusal.says << "\n" << r.out << r.err);
    CHECK(r.exit_code == 6);
    CHECK_THAT(r.err, ContainsSubstring("ringrun: error: ") && ContainsSubstring(refusal.says));
    CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
  }
}
