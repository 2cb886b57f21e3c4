// main() of the nine measuring programs. labs/CMakeLists.txt compiles it once per program, with the
// program's name as RINGSMITH_PROGRAM.
#include <string_view>

namespace ringsmith::apps {
int run_benchmark(std::string_view name, int argc, char** argv);
}

int main(int argc, char** argv) {
  return ringsmith::apps::run_benchmark(RINGSMITH_PROGRAM, argc, argv);
}
