// main() of the nine measuring programs. labs/CMakeLists.txt compiles it once per program and
// defines RINGSMITH_PROGRAM as the program's name, a row of programs.cpp.
#include <string_view>

namespace ringsmith::apps {
int run_benchmark(std::string_view name, int argc, char** argv);
}

int main(int argc, char** argv) {
  return ringsmith::apps::run_benchmark(RINGSMITH_PROGRAM, argc, argv);
}
