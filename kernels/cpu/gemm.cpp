#include "kernels/cpu/gemm.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <dlfcn.h>
#include <limits>
#include <sched.h>
#include <string>
#include <thread>

#include "kernels/mode.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith::kernels::cpu {

void sgemm(const Gemm& product) {
  products() == Products::own ? fast::gemm(product) : openblas_sgemm(product);
}

namespace {

constexpr int kRowMajor = 101, kNoTrans = 111, kTrans = 112;
using SgemmFn = void(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                     const float* a, int lda, const float* b, int ldb, float beta, float* c,
                     int ldc);

// Opens a library on a thread that may use only its current processor, so OpenBLAS starts no
// threads (gemm.hpp). Setting OPENBLAS_NUM_THREADS=1 would have the same effect, but is not safe
// while other threads read the environment.
void* open_on_one_processor(const char* name) {
  void* handle = nullptr;
  std::thread([&] {
    const int here = sched_getcpu();
    if (here >= 0) {
      const std::size_t size = CPU_ALLOC_SIZE(here + 1);
      cpu_set_t* const only = CPU_ALLOC(here + 1);
      CPU_ZERO_S(size, only);
      CPU_SET_S(here, size, only);
      (void)sched_setaffinity(0, size, only);  // on failure, OpenBLAS starts threads that sleep
      CPU_FREE(only);
    }
    handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }).join();
  return handle;
}

class OpenBlas {
 public:
  static OpenBlas& get() {
    static OpenBlas library;
    return library;
  }

  SgemmFn* sgemm = nullptr;
  std::string description;

  // OpenBLAS keeps the number of threads in a global variable, which is written only on a change.
  void follow_threads() {
    const int wanted = threads();
    if (current_threads_.exchange(wanted, std::memory_order_relaxed) != wanted)
      set_num_threads_(wanted);
  }

 private:
  OpenBlas() {
    for (const char* name : {"libopenblas.so.0", "libopenblas.so"})
      if (handle_ == nullptr) handle_ = open_on_one_processor(name);
    if (handle_ == nullptr)
      throw Error(
          "OpenBLAS (libopenblas.so.0) was not found: install it (Debian, Ubuntu: apt install "
          "libopenblas0), or use ringsmith's own products (--products own)");
    sgemm = symbol<SgemmFn>("cblas_sgemm");
    set_num_threads_ = symbol<void(int)>("openblas_set_num_threads");
    describe();
  }

  template <class F>
  F* symbol(const char* name) {
    void* address = dlsym(handle_, name);
    if (address == nullptr)
      throw Error(std::string("this libopenblas has no function ") + name +
                  ": install OpenBLAS with its CBLAS interface (Debian: libopenblas0-pthread)");
    return reinterpret_cast<F*>(address);
  }

  void describe() {
    const std::string config = symbol<char*()>("openblas_get_config")();  // "OpenBLAS 0.3.21 ..."
    const std::size_t version_end = config.find(' ', config.find(' ') + 1);
    const bool forced = std::getenv("OPENBLAS_CORETYPE") != nullptr;
    description = config.substr(0, version_end) + ", " +
                  symbol<char*()>("openblas_get_corename")() + " kernels (" +
                  (forced ? "OPENBLAS_CORETYPE is set" : "chosen by OpenBLAS") + ")";
  }

  void* handle_ = nullptr;
  void (*set_num_threads_)(int) = nullptr;
  std::atomic<int> current_threads_{0};
};

int blas_int(std::int64_t n) {
  require(n >= 0 && n <= std::numeric_limits<int>::max(),
          "matrix dimension " + std::to_string(n) + " exceeds OpenBLAS's limit of 2^31 - 1");
  return static_cast<int>(n);
}

}  // namespace

void openblas_sgemm(const Gemm& g) {
  OpenBlas& blas = OpenBlas::get();
  blas.follow_threads();
  if (g.bias != nullptr)
    for (std::int64_t i = 0; i < g.m; ++i) std::copy_n(g.bias, g.n, g.c + i * g.ldc);
  const float beta = g.bias != nullptr ? 1.0F : g.beta;
  blas.sgemm(kRowMajor, g.trans_a == Transpose::yes ? kTrans : kNoTrans,
             g.trans_b == Transpose::yes ? kTrans : kNoTrans, blas_int(g.m), blas_int(g.n),
             blas_int(g.k), 1.0F, g.a, blas_int(g.lda), g.b, blas_int(g.ldb), beta, g.c,
             blas_int(g.ldc));
}

std::string blas_description() { return OpenBlas::get().description; }

}  // namespace ringsmith::kernels::cpu
