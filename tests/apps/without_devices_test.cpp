// Tests the program of `make train`, which is linked with kernels/absent instead of device code.
#include <algorithm>

#include "tests/apps/programs.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::testing;

TEST_CASE("train_gpt without devices refuses one in a line, and trains to the same losses",
          "[quick]") {
  const std::string folder = RINGSMITH_BINARY_DIR "/bin/";
  const ProgramResult refused = run_program({folder + "cpu/train_gpt", "--device", "cuda"});
  CHECK(refused.exit_code == 6);
  CHECK(refused.out.empty());
  CHECK_THAT(refused.err, ContainsSubstring("there is no device cuda:0") &&
                              ContainsSubstring("built without devices (make build"));
  CHECK(std::ranges::count(refused.err, '\n') == 1);

  const TemporaryFolder work;
  std::string hashes[2];
  for (const bool with : {false, true}) {
    const std::string run = work / (with ? "with" : "without");
    const ProgramResult trained =
        run_program({folder + (with ? "train_gpt" : "cpu/train_gpt"), "--steps", "3", "--layers",
                     "1", "--dim", "32", "--run-dir", run});
    INFO(trained.out << trained.err);
    REQUIRE(trained.exit_code == 0);
    hashes[with] = read_text(run + "/model.safetensors");
  }
  CHECK(hashes[0].size() > 1000);
  CHECK(hashes[0] == hashes[1]);
}
