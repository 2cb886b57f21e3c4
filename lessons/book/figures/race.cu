// book_race: threads of one block leave a number in shared memory and read their neighbour's, with
// or without a barrier in between, on the emulator; who did what in which order.
//
//     book_race --threads 4 --seed 3            without the barrier
//     book_race --threads 4 --seed 3 --barrier
//
// A live figure of the book. The emulator's fibers are switched by machine code that a browser
// cannot run, so the page plays what this program recorded for a number of seeds.
#include <cstdlib>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <vector>

#include "kernels/cuda/launch.hpp"
#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"

using namespace ringsmith;

namespace {

constexpr int kMostThreads = 8;

enum What { kWrites, kWaits, kPasses, kReads };
constexpr const char* kWhats[] = {"writes", "waits", "passes", "reads"};

struct Moment {
  int thread, what, place, value;
};

struct Log {
  Moment* moments;
  int* count;
  __device__ void note(int thread, What what, int place, int value) const {
    moments[atomicAdd(count, 1)] = {thread, what, place, value};
  }
};

__global__ void neighbours(Log log, bool waits) {
  __shared__ int left_here[kMostThreads];
  const int t = static_cast<int>(threadIdx.x), n = static_cast<int>(blockDim.x);
  left_here[t] = 10 * (t + 1);
  log.note(t, kWrites, t, left_here[t]);
  if (waits) {
    log.note(t, kWaits, 0, 0);
    __syncthreads();
    log.note(t, kPasses, 0, 0);
  }
  const int next = (t + 1) % n;
  log.note(t, kReads, next, left_here[next]);
}

std::vector<Moment> record(int threads, bool waits) {
  cudaStream_t stream = nullptr;
  cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Log log{};
  const std::size_t most = static_cast<std::size_t>(threads) * 4;
  cuda_check(cudaMalloc(&log.moments, most * sizeof(Moment)));
  cuda_check(cudaMalloc(&log.count, sizeof(int)));
  cuda_check(cudaMemsetAsync(log.count, 0, sizeof(int), stream));
  launch(neighbours, 1, threads, 0, stream, log, waits);
  int count = 0;
  cuda_check(cudaMemcpyAsync(&count, log.count, sizeof count, cudaMemcpyDeviceToHost, stream));
  cuda_check(cudaStreamSynchronize(stream));
  std::vector<Moment> moments(static_cast<std::size_t>(count));
  cuda_check(cudaMemcpyAsync(moments.data(), log.moments, moments.size() * sizeof(Moment),
                             cudaMemcpyDeviceToHost, stream));
  cuda_check(cudaStreamSynchronize(stream));
  cuda_check(cudaFree(log.moments));
  cuda_check(cudaFree(log.count));
  return moments;
}

int run(int argc, char** argv) {
  int threads = 4, seed = 1;
  bool barrier = false, json = false;
  CLI::App app("Threads that read what their neighbour wrote, with or without a barrier.",
               "book_race");
  app.option_defaults()->always_capture_default()->take_last();
  app.add_option("--threads", threads, "of the block")->check(apps::whole(2, kMostThreads));
  app.add_option("--seed", seed, "of the order in which the emulator runs them")
      ->check(apps::whole(1, 1'000'000));
  app.add_flag("--barrier", barrier, "__syncthreads() between writing and reading");
  app.add_flag("--json", json, "print JSON");
  if (!apps::parse_command_line(app, argc, argv)) return 0;
  ::setenv("VGPU_SEED", std::to_string(seed).c_str(), 1);  // before the emulator looks

  const std::vector<Moment> moments = record(threads, barrier);
  int wrong = 0;
  nlohmann::json all = nlohmann::json::array();
  std::string text;
  for (const Moment& m : moments) {
    const bool stale = m.what == kReads && m.value != 10 * (m.place + 1);
    wrong += stale ? 1 : 0;
    all.push_back({{"thread", m.thread},
                   {"what", kWhats[m.what]},
                   {"place", m.place},
                   {"value", m.value},
                   {"stale", stale}});
    text += fmt::format("thread {} {}", m.thread, kWhats[m.what]);
    if (m.what == kWrites) text += fmt::format(" {} into place {}", m.value, m.place);
    if (m.what == kWaits) text += " at the barrier";
    if (m.what == kPasses) text += " the barrier";
    if (m.what == kReads)
      text += fmt::format(" place {}: {}{}", m.place, m.value,
                          stale ? ", which its neighbour has not written yet" : "");
    text += "\n";
  }
  if (json)
    fmt::print("{}\n", nlohmann::json{{"threads", threads},
                                      {"barrier", barrier},
                                      {"seed", seed},
                                      {"moments", all},
                                      {"wrong", wrong}}
                           .dump());
  else
    fmt::print("{}{} of {} threads read a number that was not there yet\n", text, wrong, threads);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program("book_race", [&] { return run(argc, argv); });
}
