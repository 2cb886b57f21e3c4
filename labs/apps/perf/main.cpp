// One of the nine measuring programs: the one that labs/CMakeLists.txt names, of programs.cpp's
// table.
#include <string_view>

namespace ringsmith::apps {
int run_benchmark(std::string_view name, int argc, char** argv);
}

int main(int argc, char** argv) {
  return ringsmith::apps::run_benchmark(RINGSMITH_PROGRAM, argc, argv);
}
