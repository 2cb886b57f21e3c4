// `lone_setenv_planted after|beside` makes a call that lone_setenv.c must accept or report.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

int main(int, char** argv) {
  std::atomic<bool> stop = false;
  std::thread other([&] { stop.wait(false); });
  const auto end = [&] {
    stop = true;
    stop.notify_all();
    other.join();
  };
  if (std::strcmp(argv[1], "beside") != 0) end();
  setenv("PLANTED", argv[1], 1);
  if (other.joinable()) end();
  return 0;
}
