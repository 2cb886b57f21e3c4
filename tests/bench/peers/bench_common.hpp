// Shared by the peers' all-reduce benchmarks: options, data, verification, timing, and a table
// whose header names `size` and `time`, like all_reduce_perf's. A back end implements Comm.
// tests/bench/collectives.sh builds the peers, which use no code of ringsmith.
#pragma once
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

struct Args {
  size_t min_bytes = 1 << 10, max_bytes = 256u << 20;
  double factor = 4;
  int warmup = 5, iters = 20;
  double min_ms = 0;  // -T: iterate for about this long (raises iters to at most 20000)
  int np = 2;         // -p (back ends that fork; MPI takes it from mpirun)
  std::string alg;    // -a
  int bind = 0;       // -B: pin rank r to core r % ncores
  int huge = 0;       // -H: madvise(MADV_HUGEPAGE) on the buffers
  bool csv = false;   // -C
};

inline size_t parse_size(const char* s) {
  char* e = nullptr;
  double v = strtod(s, &e);
  if (*e == 'K' || *e == 'k') v *= 1 << 10;
  if (*e == 'M' || *e == 'm') v *= 1 << 20;
  if (*e == 'G' || *e == 'g') v *= 1 << 30;
  return static_cast<size_t>(v);
}

inline Args parse_args(int argc, char** argv) {
  Args a;
  int c;
  while ((c = getopt(argc, argv, "b:e:f:w:n:T:p:a:B:H:Ch")) != -1) {
    switch (c) {
      case 'b':
        a.min_bytes = parse_size(optarg);
        break;
      case 'e':
        a.max_bytes = parse_size(optarg);
        break;
      case 'f':
        a.factor = atof(optarg);
        break;
      case 'w':
        a.warmup = atoi(optarg);
        break;
      case 'n':
        a.iters = atoi(optarg);
        break;
      case 'T':
        a.min_ms = atof(optarg);
        break;
      case 'p':
        a.np = atoi(optarg);
        break;
      case 'a':
        a.alg = optarg;
        break;
      case 'B':
        a.bind = atoi(optarg);
        break;
      case 'H':
        a.huge = atoi(optarg);
        break;
      case 'C':
        a.csv = true;
        break;
      default:
        fprintf(stderr,
                "-b min -e max (1K, 4M..) -f factor -w warmup -n iters -T min_ms "
                "-p procs -a algorithm -B bind(0/1) -H hugepages(0/1) -C (csv)\n");
        exit(c == 'h' ? 0 : 2);
    }
  }
  if (a.min_bytes < 4 || a.max_bytes < a.min_bytes || a.factor <= 1 || a.iters < 1) {
    fprintf(stderr, "bad sizes, factor or iters\n");
    exit(2);
  }
  return a;
}

struct Comm {
  int rank = 0, size = 1;
  virtual ~Comm() = default;
  virtual float* buffer(size_t bytes) = 0;                // this rank's in-place buffer
  virtual void allreduce(float* data, size_t count) = 0;  // SUM, in place
  virtual void barrier() = 0;
  virtual void max_doubles(double* v, size_t n) = 0;  // all-reduce MAX, in place
  virtual void prepare(float*, size_t) {}             // per-size set-up, untimed
};

inline double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

inline void pin(int rank) {
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  cpu_set_t s;
  CPU_ZERO(&s);
  CPU_SET(rank % n, &s);
  sched_setaffinity(0, sizeof s, &s);
}

// Small integers, so that every partial sum is exact in float32.
inline float input_value(size_t i, int rank) {
  uint32_t h = static_cast<uint32_t>(i) * 2654435761u + static_cast<uint32_t>(rank) * 40503u;
  return static_cast<float>(static_cast<int>((h >> 13) % 513u) - 256);
}
inline void fill(float* d, size_t n, int rank) {
  for (size_t i = 0; i < n; ++i) d[i] = input_value(i, rank);
}
inline size_t check(const float* d, size_t n, int size) {
  size_t bad = 0;
  for (size_t i = 0; i < n; ++i) {
    float want = 0;
    for (int r = 0; r < size; ++r) want += input_value(i, r);
    bad += d[i] != want;
  }
  return bad;
}

inline double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  size_t n = v.size();
  return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

// Times `iters` back-to-back all-reduces. An iteration's time is the slowest rank's; `time` is the
// median over iterations, `avg` the loop's wall time / iters (what nccl-tests prints).
inline int run_table(Comm& c, const Args& a, const char* name) {
  if (a.bind) pin(c.rank);
  const bool root = c.rank == 0;
  if (root && !a.csv) {
    printf("# %s np=%d in-place float32 sum, warmup %d, iters %d, min_ms %g, bind %d, huge %d\n",
           name, c.size, a.warmup, a.iters, a.min_ms, a.bind, a.huge);
    printf("# %12s %12s %7s %6s %11s %8s %8s %11s %11s %11s %6s %6s\n", "size(B)", "count", "type",
           "redop", "time(us)", "algbw", "busbw", "avg(us)", "min(us)", "p90(us)", "iters",
           "wrong");
    fflush(stdout);
  }
  size_t total_bad = 0;
  for (double sz = static_cast<double>(a.min_bytes); sz <= a.max_bytes * 1.0000001;
       sz *= a.factor) {
    const size_t count = std::max<size_t>(1, static_cast<size_t>(sz) / sizeof(float));
    const size_t bytes = count * sizeof(float);
    float* buf = c.buffer(bytes);
    fill(buf, count, c.rank);
    c.prepare(buf, count);
    c.barrier();
    c.allreduce(buf, count);
    double bad = static_cast<double>(check(buf, count, c.size));
    // Zeros stay finite over any number of in-place repetitions.
    for (size_t i = 0; i < count; ++i) buf[i] = 0.f;
    c.barrier();
    double t0 = now_us();
    for (int i = 0; i < a.warmup; ++i) c.allreduce(buf, count);
    double warm = a.warmup ? (now_us() - t0) / a.warmup : 0;
    c.max_doubles(&warm, 1);
    int iters = a.iters;
    if (a.min_ms > 0 && warm > 0)
      iters = std::max(iters, static_cast<int>(std::min(20000.0, a.min_ms * 1000 / warm)));
    std::vector<double> t(iters);
    c.barrier();
    t0 = now_us();
    double prev = t0;
    for (int i = 0; i < iters; ++i) {
      c.allreduce(buf, count);
      double n = now_us();
      t[i] = n - prev;
      prev = n;
    }
    double avg = (prev - t0) / iters;
    c.max_doubles(&avg, 1);
    c.max_doubles(t.data(), t.size());
    fill(buf, count, c.rank);
    c.barrier();
    c.allreduce(buf, count);
    bad = std::max(bad, static_cast<double>(check(buf, count, c.size)));
    c.max_doubles(&bad, 1);
    c.barrier();
    total_bad += static_cast<size_t>(bad);
    if (!root) continue;
    const double med = median(t);
    std::sort(t.begin(), t.end());
    const double algbw = bytes / med / 1e3;
    const double busbw = algbw * 2.0 * (c.size - 1) / c.size;
    if (a.csv)
      printf("%s,%d,%zu,%zu,%.3f,%.4f,%.4f,%.3f,%.3f,%.3f,%d,%.0f\n", name, c.size, bytes, count,
             med, algbw, busbw, avg, t.front(), t[t.size() * 9 / 10], iters, bad);
    else
      printf("  %12zu %12zu %7s %6s %11.2f %8.3f %8.3f %11.2f %11.2f %11.2f %6d %6.0f\n", bytes,
             count, "float", "sum", med, algbw, busbw, avg, t.front(), t[t.size() * 9 / 10], iters,
             bad);
    fflush(stdout);
  }
  if (root && !a.csv)
    printf("# Out of bounds values: %zu %s\n", total_bad, total_bad ? "FAILED" : "OK");
  return total_bad ? 1 : 0;
}

inline float* private_buffer(size_t bytes, bool huge) {
  // Maps a new buffer only if the previous one is too small. fill() touches the pages.
  static void* base = nullptr;
  static size_t cap = 0;
  if (bytes > cap) {
    if (base) munmap(base, cap);
    cap = (bytes + (2u << 20) - 1) & ~static_cast<size_t>((2u << 20) - 1);
    base = mmap(nullptr, cap, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
      perror("mmap");
      exit(1);
    }
    if (huge) madvise(base, cap, MADV_HUGEPAGE);
  }
  return static_cast<float*>(base);
}
