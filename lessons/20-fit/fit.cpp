// fit: will it fit, and what binds it? Prints the parameters of a transformer, the arithmetic of a
// step, the memory of a rank and the bytes that it sends, for data parallel training, ZeRO's stages
// and a tensor split. All of it is computed, nothing is measured.
//
//     fit --layers 32 --width 4096 --vocabulary 32000 --context 4096 --batch 1 --ranks 8
//         --flops 990e12 --link 450e9 --alpha 10e-6
//     fit bind      the tokens and widths from which computing takes longer than sending
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace {

struct Job {
  // A GPT without biases: attention has 4 d^2 parameters, the MLP 8 d^2, the embedding V d, once.
  double layers = 32, width = 4096, vocabulary = 32000, context = 4096;
  double batch = 1;  // sequences on a rank
  double ranks = 8;
  double flops = 990e12;  // of a rank, a second: the dense bf16 peak of an H100 SXM
  double link = 450e9;    // bytes a second that a rank sends: NVLink 4, one direction
  double alpha = 10e-6;   // seconds of a message: an assumption

  [[nodiscard]] double parameters() const {
    return layers * 12 * width * width + vocabulary * width;
  }
  [[nodiscard]] double tokens() const { return batch * context; }  // of a rank
  [[nodiscard]] double share() const { return (ranks - 1) / ranks; }
};

// Floating-point operations of a token: 6 for each parameter, and attention's products, 12 T d in
// each layer (of which a causal kernel may skip half).
double flops_of_token(const Job& j) {
  return 6 * j.parameters() + 12 * j.layers * j.width * j.context;
}

// Bytes of bf16 activations that a layer keeps for backward: 34 for each token and unit of width if
// the scores are not stored (Korthikanti et al., 2022; two of them are a dropout mask's).
double activations(const Job& j, double per_number = 34) {
  return per_number * j.tokens() * j.width;
}

void report(const Job& j) {
  const double n = j.parameters(), gb = 1e9, w = j.ranks;
  std::printf("parameters              %9.3f billion (%.3f in a layer)\n", n / gb,
              12 * j.width * j.width / gb);
  std::printf("operations of a token   %9.3f billion, of which 6 N %.3f\n", flops_of_token(j) / gb,
              6 * n / gb);
  const double compute = flops_of_token(j) * j.tokens() / j.flops;
  std::printf("a step of %.0f tokens computes for %.1f ms at the peak, %.1f ms at 40 %% MFU\n",
              j.tokens(), compute * 1e3, compute / 0.4 * 1e3);
  // Mixed precision: 2 bytes of parameters, 2 of gradients, 12 of state (4 of them are the f32
  // copy).
  const double unit = 2 * 12 * j.width * j.width;
  const double reduce = 2 * n * j.share(), activation = 2 * j.tokens() * j.width;
  struct Row {
    const char* name;
    double memory, more, sends, messages;
  };
  const std::vector<Row> rows{
      {"DDP", 16 * n, 0, 2 * reduce, 2 * (w - 1)},
      {"ZeRO-1", 4 * n + 12 * n / w, 0, 2 * reduce, 2 * (w - 1)},
      {"ZeRO-2", 2 * n + 14 * n / w, unit, 2 * reduce, (j.layers + 1) * (w - 1)},
      {"ZeRO-3", 16 * n / w, 3 * unit, 3 * reduce, 3 * j.layers * (w - 1)},
      // Four all-reduces of a layer's activations, two forward and two backward. All ranks have the
      // same tokens, as many as all of them together have otherwise.
      {"tensor split", 16 * n / w, 0, 4 * j.layers * 2 * activation * w * j.share(),
       4 * j.layers * 2 * (w - 1)},
  };
  std::printf("on each of %.0f ranks, GB   keeps   at most more   sends   takes, ms\n", w);
  for (const Row& r : rows)
    std::printf("  %-14s %14.1f %14.1f %7.1f %11.1f\n", r.name, r.memory / gb, r.more / gb,
                r.sends / gb, (r.sends / j.link + r.messages * j.alpha) * 1e3);
  std::printf("activations for backward, GB\n");
  std::printf("  kept                %9.1f\n", j.layers * activations(j) / gb);
  std::printf("  recomputed          %9.1f\n",
              (j.layers * activations(j, 2) + activations(j, 34)) / gb);
}

// Tokens of a rank from which a step of ZeRO-3 computes longer than it sends, without attention's
// part: 6 N tokens / flops = 6 N share / link. And the width from which a layer of a tensor split
// does, which no number of tokens changes.
void bind() {
  struct Link {
    const char* name;
    double bytes;
  };
  std::printf("                             tokens of a rank   width of a split\n");
  std::printf("link                         for ZeRO-3         over 8 ranks\n");
  for (const Link& l : {Link{"NVLink 4, 450 GB/s", 450e9}, Link{"400 Gbit/s, 50 GB/s", 50e9},
                        Link{"100 Gbit/s, 12.5 GB/s", 12.5e9}}) {
    Job j;
    // A layer: 72 d^2 operations a token, divided by 8 ranks; 4 all-reduces of 2 d bytes a token.
    const double bytes = 4.0 * 2 * j.share() * 2,
                 split = bytes / l.bytes / (72 / j.ranks / j.flops);
    std::printf("%-28s %16.0f %18.0f\n", l.name, j.flops * j.share() / l.bytes, split);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "bind") == 0) {
    bind();
    return 0;
  }
  Job job;
  const std::vector<std::pair<const char*, double*>> options{
      {"--layers", &job.layers},   {"--width", &job.width}, {"--vocabulary", &job.vocabulary},
      {"--context", &job.context}, {"--batch", &job.batch}, {"--ranks", &job.ranks},
      {"--flops", &job.flops},     {"--link", &job.link},   {"--alpha", &job.alpha}};
  for (int a = 1; a < argc; a += 2) {
    double* value = nullptr;
    for (const auto& [name, target] : options)
      if (std::strcmp(argv[a], name) == 0) value = target;
    char* end = nullptr;
    if (value != nullptr && a + 1 < argc) *value = std::strtod(argv[a + 1], &end);
    if (end == nullptr || *end != '\0' || !(*value >= 0) || *value > 1e30) {
      std::fprintf(stderr, "fit: %s: known are bind, and a number of at least 0 after", argv[a]);
      for (const auto& [name, target] : options) std::fprintf(stderr, " %s", name);
      std::fprintf(stderr, "\n");
      return 2;
    }
  }
  if (job.ranks < 1 || job.flops == 0 || job.link == 0) {
    std::fprintf(stderr, "fit: --ranks is at least 1, --flops and --link are above 0\n");
    return 2;
  }
  report(job);
}
