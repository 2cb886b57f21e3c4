// oneDNN's products, the peer of kernel_bench matmul: products_dnnl SECONDS MxKxN...
//
// One thread, row-major operands as in kernel_bench. f32 uses dnnl_sgemm. bf16 uses f32 sums, first
// with a row-major second operand, then with one in oneDNN's preferred layout, converted before the
// clock starts. Prints `shape type GFLOP/s`, medians.
#include <dnnl.hpp>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

using dnnl::memory;

namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Returns the median time of run() in seconds, over batches of about `most` / 50 s, after warm-up.
template <class Run>
double median_of(double most, Run run) {
  const double first = seconds_now();
  run();
  const double once = seconds_now() - first;
  const int inner = std::max(1, static_cast<int>(most / 50 / once));
  std::vector<double> times;
  for (const double end = seconds_now() + most; seconds_now() < end || times.size() < 3;) {
    const double begin = seconds_now();
    for (int i = 0; i < inner; ++i) run();
    times.push_back((seconds_now() - begin) / inner);
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

std::vector<float> values(std::size_t n) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> all(n);
  for (float& v : all) v = uniform(random);
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  omp_set_num_threads(1);
  const double most = argc > 1 ? std::atof(argv[1]) : 0.1;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  for (int at = 2; at < argc; ++at) {
    long m = 0, k = 0, n = 0;
    if (std::sscanf(argv[at], "%ldx%ldx%ld", &m, &k, &n) != 3 || m < 1 || k < 1 || n < 1) {
      std::fprintf(stderr, "products_dnnl: '%s' is no shape MxKxN\n", argv[at]);
      return 6;
    }
    const double flops = 2.0 * static_cast<double>(m * k * n);
    const auto row = [&](const char* type, double seconds) {
      std::printf("%s %s %.1f\n", argv[at], type, 1e-9 * flops / seconds);
    };
    std::vector<float> a = values(m * k), b = values(k * n), c(m * n);
    row("f32", median_of(most, [&] {
          dnnl_sgemm('N', 'N', m, n, k, 1, a.data(), k, b.data(), n, 0, c.data(), n);
        }));
    using Type = memory::data_type;
    using Tag = memory::format_tag;
    // Copies `from` as bf16 into the layout of `like`.
    const auto halves = [&](std::vector<float>& from, long rows, long cols, const memory::desc& like) {
      memory f32({{rows, cols}, Type::f32, Tag::ab}, engine, from.data()), out(like, engine);
      dnnl::reorder(f32, out).execute(stream, f32, out);
      return out;
    };
    for (const Tag order : {Tag::ab, Tag::any}) {
      const memory::desc ad({m, k}, Type::bf16, Tag::ab), bd({k, n}, Type::bf16, order),
          cd({m, n}, Type::bf16, Tag::ab);
      const dnnl::matmul::primitive_desc how({ad, bd, cd}, engine);
      const dnnl::matmul product(how);
      const memory am = halves(a, m, k, ad), bm = halves(b, k, n, how.weights_desc()), cm(cd, engine);
      row(order == Tag::ab ? "bf16" : "bf16-packed", median_of(most, [&] {
            product.execute(stream, {{DNNL_ARG_SRC, am}, {DNNL_ARG_WEIGHTS, bm}, {DNNL_ARG_DST, cm}});
            stream.wait();
          }));
    }
  }
}
