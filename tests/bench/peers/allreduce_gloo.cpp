// Benchmarks gloo, which torch.distributed uses on CPUs. Forks -p processes, which meet through a
// FileStore and communicate by TCP on the loopback interface. -a ring (default, as in
// torch.distributed) | bcube | ring_chunked | halving_doubling
#include <filesystem>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <memory>
#include <sys/wait.h>

#include "tests/bench/peers/bench_common.hpp"

struct GlooComm : Comm {
  std::shared_ptr<gloo::rendezvous::Context> ctx;
  std::string alg;
  bool huge;
  std::unique_ptr<gloo::Algorithm> algo;  // the older class-based algorithms bind a buffer
  GlooComm(int r, int n, const std::string& dir, const Args& a) : alg(a.alg), huge(a.huge) {
    rank = r;
    size = n;
    gloo::transport::tcp::attr attr;
    attr.iface = "lo";
    auto dev = gloo::transport::tcp::CreateDevice(attr);
    gloo::rendezvous::FileStore store(dir);
    ctx = std::make_shared<gloo::rendezvous::Context>(r, n);
    ctx->connectFullMesh(store, dev);
  }
  float* buffer(size_t b) override {
    algo.reset();
    return private_buffer(b, huge);
  }
  void prepare(float* d, size_t n) override {
    std::vector<float*> p{d};
    if (alg == "ring_chunked")
      algo = std::make_unique<gloo::AllreduceRingChunked<float>>(ctx, p, static_cast<int>(n));
    else if (alg == "halving_doubling")
      algo = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(ctx, p, static_cast<int>(n));
  }
  template <typename T>
  void run(T* d, size_t n, gloo::AllreduceOptions::Func f, gloo::AllreduceOptions::Algorithm g) {
    gloo::AllreduceOptions o(ctx);
    o.setOutput(d, n);
    o.setAlgorithm(g);
    o.setReduceFunction(f);
    gloo::allreduce(o);
  }
  void allreduce(float* d, size_t n) override {
    if (algo) return algo->run();
    run<float>(d, n,
               static_cast<void (*)(void*, const void*, const void*, size_t)>(gloo::sum<float>),
               alg == "bcube" ? gloo::AllreduceOptions::Algorithm::BCUBE
                              : gloo::AllreduceOptions::Algorithm::RING);
  }
  void barrier() override {
    gloo::BarrierOptions o(ctx);
    gloo::barrier(o);
  }
  void max_doubles(double* v, size_t n) override {
    run<double>(v, n,
                static_cast<void (*)(void*, const void*, const void*, size_t)>(gloo::max<double>),
                gloo::AllreduceOptions::Algorithm::RING);
  }
};

int main(int argc, char** argv) {
  Args a = parse_args(argc, argv);
  std::string dir = (std::filesystem::temp_directory_path() / "gloo_peers_XXXXXX").string();
  if (mkdtemp(dir.data()) == nullptr) {
    perror("mkdtemp");
    return 1;
  }
  std::vector<pid_t> kids;
  for (int r = 0; r < a.np; ++r) {
    pid_t p = fork();
    if (p == 0) {
      int rc = 1;
      try {
        GlooComm c(r, a.np, dir, a);
        std::string name = "gloo/" + (a.alg.empty() ? std::string("ring") : a.alg);
        rc = run_table(c, a, name.c_str());
        c.algo.reset();
      } catch (const std::exception& e) {
        fprintf(stderr, "rank %d: %s\n", r, e.what());
      }
      fflush(stdout);
      _exit(rc);
    }
    kids.push_back(p);
  }
  int rc = 0, st;
  for (pid_t p : kids) {
    waitpid(p, &st, 0);
    if (st != 0) rc = 1;
  }
  std::error_code error;
  std::filesystem::remove_all(dir, error);
  if (error) rc = 1;
  return rc;
}
