// main() of the nine measuring programs; labs/CMakeLists.txt sets the name of one in programs.cpp.
#include <string_view>

namespace ringsmith::apps {
int run_benchmark(std::string_view name, int argc, char** argv);
}

int main(int argc, char** argv) {
  return ringsmith::apps::run_benchmark(RINGSMITH_PROGRAM, argc, argv);
}
