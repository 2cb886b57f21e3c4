// Catch2's main(); --help also names this program's environment variable.
#include <iostream>
#include <string>

#define CATCH_CONFIG_RUNNER
#include "tests/support/catch.hpp"

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "-?" || arg == "-h" || arg == "--help")
      std::cout
          << "tests_reference: ringsmith against PyTorch's numbers.\n\n"
             "environment:\n"
             "  RINGSMITH_REFERENCE_DIR   read this set instead of tests/reference/data:\n"
             "                            index.json, ops/, optim/, strict/, ... as described\n"
             "                            in tests/reference/data.hpp\n"
             "  RINGSMITH_TEST_DEVICE     compute on this device (cuda:0, ...) instead of the "
             "CPU\n";
  }
  return Catch::Session().run(argc, argv);
}
