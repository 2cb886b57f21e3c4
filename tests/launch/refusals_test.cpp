// Tests command lines that ringrun must refuse with one line that names the input and the remedy.
#include <algorithm>
#include <cstdlib>
#include <filesystem>

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
    {{"--nprocs", "2", "true"}, "--nprocs: unknown option"},
    {{"--nnodes", "1:2", "true"}, "add --rdzv-backend c10d --rdzv-endpoint HOST:PORT"},
    {{"--nnodes", "3:2", "true"}, "'3:2': give MIN:MAX, where MIN is not more than MAX"},
    {{"--nnodes", "0:2", "true"}, "'0'"},
    {{"--nnodes", "2:", "true"}, "'' is not a whole number from 1"},
    {{"--nnodes", "2:3:4", "true"}, "'3:4'"},
    {{"--nnodes", "0", "true"}, "'0'"},
    {{"--max-restarts", "-1", "true"}, "'-1' is not a whole number from 0"},
    {{"--max-restarts", "many", "true"}, "'many'"},
    {{"--max-restarts", "1", "--nnodes", "2", "--port-file", "p", "true"}, "give --master-port"},
    {{"--rdzv-backend", "etcd", "true"}, "'etcd': ringrun supports static and c10d"},
    {{"--nnodes", "2", "--rdzv_backend=c10d", "true"}, "give --rdzv-endpoint HOST:PORT, where"},
    {{"--rdzv-endpoint", ":29400", "true"}, "':29400': give HOST:PORT"},
    {{"--rdzv-endpoint", "localhost:99999", "true"}, "localhost:99999' '99999' is not a port"},
    {{"--nnodes", "2", "--rdzv-endpoint", "localhost:0", "true"}, "'0' is not a port"},
    {{"--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "no-such-host.invalid",
      "--no-secret", "--join-timeout", "1", "true"},
     "no-such-host.invalid"},
    {{"--rdzv-conf", "is_fast=1", "true"}, "'is_fast=1': give join_timeout=SECONDS"},
    {{"--rdzv-conf", "join_timeout=soon", "true"}, "join_timeout 'soon' is not a whole number"},
    {{"--last-call", "-1", "true"}, "'-1' is not a number from 0"},
    {{"--no-secret", "--secret-file", "f", "true"}, "give only one"},
    {{"-m", "train"},
     "torchrun's -m is not supported: name the program: ringrun ... -- python3 -m"},
    {{"--module", "train"}, "-- python3 -m MODULE"},
    {{"--run-path", "train.py"}, "-- python3 FILE"},
    {{"--start_method=spawn", "true"}, "torchrun's --start-method is not supported: leave it out"},
    {{"--monitor-interval", "5", "true"}, "leave it out"},
    {{"--role", "trainer", "true"}, "leave it out"},
    {{"--redirects", "3", "true"}, "--log-dir FOLDER writes both"},
    {{"-r", "3", "true"}, "--log-dir FOLDER writes both"},
    {{"-t", "3", "true"}, "--tee, without a number"},
    {{"--log-dir", "/tmp/x", "--tee", "3", "true"}, "--tee takes no number"},
    {{"--local-addr", "10.0.0.1", "true"}, "--bind INTERFACE"},
    {{"--nnodes", "2", "--node-rank", "2", "true"}, "--node-rank 2 is not one of 2 nodes"},
    {{"--nnodes", "2", "true"}, "share a secret"},
    {{"--nnodes", "2", "--master-port", "0", "true"}, "give --master-port"},
    {{"--nnodes", "2", "--master-port", "1", "true"}, "share a secret"},
    {{"--standalone", "--nnodes", "2", "true"}, "--standalone is for one node"},
    {{"--standalone", "--master-port", "7", "true"}, "--standalone is for one node"},
    {{"--standalone", "--rdzv-endpoint", "a:7", "true"}, "--standalone is for one node"},
    {{"--master-port", "99999", "true"}, "'99999' is not a port"},
    {{"--master-addr", "192.0.2.1", "true"}, "not an address of this host"},
    {{"--bind", "no-such-interface.invalid", "true"}, "'no-such-interface.invalid'"},
    {{"--bind", "no-such-interface.invalid", "true"}, "an interface of this host, which has "},
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
  unsetenv("HOME");  // so that the user's secret is not found either
  for (const Refusal& refusal : kRefusals) {
    const auto r = ringrun(refusal.words);
    INFO(refusal.says << "\n" << r.out << r.err);
    CHECK(r.exit_code == 6);
    CHECK_THAT(r.err, ContainsSubstring("ringrun: error: ") && ContainsSubstring(refusal.says));
    CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
  }
}

TEST_CASE("a program that is there and cannot run: the message names what it lacks", "[ringrun]") {
  const TemporaryFolder folder;
  const std::string plain = write_text(folder / "plain", "");
  std::string program = read_text("/bin/true");
  const std::size_t loader = program.find("/ld-");
  REQUIRE(loader != std::string::npos);
  program.replace(loader, 4, "/no-");
  const std::string through = write_text(folder / "through", "#!/no/such/python3 -u\n");
  std::filesystem::permissions(through, std::filesystem::perms::owner_all);
  const struct {
    std::string text, says;
  } rows[] = {
      {"#!/no/such/python3\n", ": its interpreter '/no/such/python3' does not exist on this host"},
      {"#! \t/no/such/python3 -u\n", ": its interpreter '/no/such/python3' does not exist"},
      {"#!/no/such/python3", "'/no/such/python3' does not exist"},
      {"#!/bin/sh\r\necho\r\n", ": its interpreter '/bin/sh\\x0d' ends in a carriage return"},
      {"#!" + plain + "\n", ": its interpreter '" + plain + "' is not an executable file"},
      {"#!" + folder.path.string() + "\n", "' is not an executable file"},
      {"#!" + through + "\n",
       "its interpreter '" + through + "' cannot run: its interpreter '/no/such/python3' does not"},
      {program, ": its loader '"},
      {"echo hello\n", ": it is neither a program nor a script whose first line begins with #!"},
      {"", ": it is neither a program nor a script"},
      {std::string("\x7f") + "ELF" + std::string(100, '\0'), ": it is a program for another"},
      {"#!\n", ": "},
  };
  const std::string script = folder / "script";
  for (const auto& [text, says] : rows) {
    write_text(script, text);
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    const auto r = ringrun({"--nproc-per-node", "2", "--", script});
    INFO(r.out << r.err);
    CHECK(r.exit_code == 6);
    CHECK_THAT(r.err, ContainsSubstring("ringrun: error: cannot run '" + script + "': ") &&
                          ContainsSubstring(says));
    CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
  }
}
