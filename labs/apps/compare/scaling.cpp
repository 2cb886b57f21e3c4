// scaling: predicts how fast a model would train on a cluster described in a file, with up to
// 16,384 GPUs. Nothing is measured: the time of the computation follows from FLOPs, and the
// simulator gives the times of the all-reduces.
#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <map>
#include <unistd.h>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"
#include "labs/apps/common/files.hpp"
#include "labs/apps/common/text.hpp"
#include "labs/apps/compare/chart.hpp"
#include "labs/apps/compare/prediction.hpp"
#include "runtime/comm/schedule/select.hpp"
#include "runtime/parallel/bucket.hpp"

using namespace ringsmith;
using namespace ringsmith::apps;

namespace {

struct Options {
  std::string topology = "dgx-h100", model = "resnet50", svg;
  std::vector<std::string> algorithms{"ring", "double_tree", "hierarchical"};
  int from = 2, to = 16384;
  double bucket_cap_mb = kBucketMb, compute_ms = 0;
};

constexpr const char* kFooter = R"(
Reading the table:
  all-reduce   time of all all-reduces of a step, one after the other
  exposed      the part of it that remains after backward and lengthens the step
  step         forward, backward and the exposed part
  efficiency   step time of one GPU over that of all GPUs: 100 % is perfect
               scaling

Assumptions: every GPU computes as fast as it does alone; backward is two thirds
of the computation; buckets become ready in proportion to their bytes; the
network between nodes is non-blocking; the ring is a single ring that uses one
NIC of each node.

Exit codes: 0 done, 6 wrong options or files.
)";

constexpr std::size_t kIndent = 11;  // of the lines that describe the model and the machine

struct Row {
  int world = 1;
  std::vector<PredictedStep> steps;  // by algorithm
};

Row predict(const Options& o, const comm::Topology& topology, double compute,
            const std::vector<double>& buckets, int world) {
  Row row{world, {}};
  for (const std::string& name : o.algorithms) {
    const auto algorithm = comm::parse_algorithm(comm::Collective::all_reduce, name);
    std::map<double, double> known;  // most buckets have the same size
    row.steps.push_back(predict_step(compute, buckets, [&](double bytes) {
      const auto [entry, fresh] = known.try_emplace(bytes);
      if (fresh) entry->second = comm::all_reduce_time(topology, algorithm, world, bytes);
      return entry->second;
    }));
  }
  return row;
}

std::string ms(double seconds) {
  return fmt::format("{:.{}f}", seconds * 1e3, seconds < 0.1 ? 2 : seconds < 10 ? 1 : 0);
}

// Flushes each row, even if the output is a pipe, because a row for thousands of GPUs takes
// seconds.
void print_row(const Options& o, double compute, const Row& row) {
  for (std::size_t a = 0; a < row.steps.size(); ++a) {
    const PredictedStep& step = row.steps[a];
    fmt::print("{:>6}  {:<17}{:>14}{:>12}{:>11}{:>10.1f} %\n",
               a == 0 ? std::to_string(row.world) : "", o.algorithms[a], ms(step.reductions),
               ms(step.exposed), ms(step.total()), 100 * compute / step.total());
  }
  std::fflush(stdout);
}

void require_algorithms(const Options& o, const comm::Topology& topology) {
  require(o.algorithms.size() <= 3,
          "--algorithms: give at most three, so that they can be told apart");
  for (auto a = o.algorithms.begin(); a != o.algorithms.end(); ++a) {
    require(std::find(o.algorithms.begin(), a, *a) == a, "--algorithms names '" + *a + "' twice");
    try {
      (void)comm::all_reduce_time(topology, comm::parse_algorithm(comm::Collective::all_reduce, *a),
                                  std::min(2, topology.most_ranks()), 1024);
    } catch (const UsageError& e) {
      throw UsageError(std::string("--algorithms: ") + e.what());
    }
  }
}

void draw(const Options& o, const comm::Topology& topology, const TrainedModel& model,
          const std::vector<Row>& rows) {
  Panel step{"Time of a step", Panel::Unit::seconds, {}};
  Panel reductions{"All-reduces of a step", Panel::Unit::seconds, {}};
  constexpr Curve::Role kRoles[] = {Curve::Role::second, Curve::Role::first_pale,
                                    Curve::Role::first};
  for (std::size_t a = 0; a < o.algorithms.size(); ++a) {
    Curve one{o.algorithms[a], kRoles[a], {}, {}}, other = one;
    for (const Row& row : rows) {
      one.predicted.push_back({static_cast<double>(row.world), row.steps[a].total()});
      other.predicted.push_back({static_cast<double>(row.world), row.steps[a].reductions});
    }
    step.curves.push_back(one);
    reductions.curves.push_back(other);
  }
  write_file(o.svg, render_panels(model.name + " on " + topology.name,
                                  "predicted from the description of the machine, not measured",
                                  {step, reductions}));
}

int run(int argc, char** argv) {
  Options o;
  CommandLine app(
      "Predicts step time and efficiency of data-parallel training on a described cluster.",
      "scaling");
  app.add_option("--topology", o.topology,
                 "cluster: dgx-h100 or ethernet (of labs/scaling), or a file in their format");
  app.add_option("--model", o.model, "model: resnet50, gpt2-xl, or a file in their format");
  app.add_option("--algorithms", o.algorithms,
                 "up to three all-reduce algorithms, separated by commas")
      ->separated_by_commas(3)
      ->default_text("ring,double_tree,hierarchical");
  app.add_option("--from", o.from, "first number of GPUs, which is then doubled")
      ->check(whole(1, 16384));
  app.add_option("--to", o.to, "largest number of GPUs")->check(whole(1, 16384));
  app.add_option("--bucket-cap-mb", o.bucket_cap_mb, "MiB of gradients in one all-reduce")
      ->check(above_zero(1e6));
  app.add_option("--compute-ms", o.compute_ms,
                 "time of forward and backward on one GPU; 0: computed from the FLOPs of the model "
                 "and the GPU")
      ->check(real(0, 1e8));
  app.add_option("--svg", o.svg, "also draw the table into this SVG file");
  app.footer(kFooter);
  if (!app.parse(argc, argv)) return 0;
  const comm::Topology topology = load_topology(o.topology);
  const TrainedModel model = load_model(o.model);
  const int most = std::min(o.to, topology.most_ranks());
  require(o.from <= most, fmt::format("--from {} is more than --to {} or than the {} GPUs of {}",
                                      o.from, o.to, topology.most_ranks(), topology.name));
  require_algorithms(o, topology);
  require_writable(o.svg);
  const double compute = o.compute_ms > 0 ? o.compute_ms * 1e-3 : model.flops / topology.flops;
  const auto buckets = buckets_of(model, BucketCaps().first,
                                  Bytes(static_cast<std::size_t>(o.bucket_cap_mb * 0x1p20)));
  double bytes = 0;
  for (const double bucket : buckets) bytes += bucket;
  fmt::print("{} on {}\n", model.name, topology.name);
  fmt::print("  model    {}\n  machine  {}\n", wrapped(model.source, kIndent),
             wrapped(topology.source, kIndent));
  fmt::print("  {:.1f} MiB of gradients in {} buckets; one GPU alone computes {} ms a step\n\n",
             bytes / 0x1p20, buckets.size(), ms(compute));
  fmt::print("{:>6}  {:<17}{:>14}{:>12}{:>11}{:>12}\n", "GPUs", "algorithm", "all-reduce ms",
             "exposed ms", "step ms", "efficiency");
  std::fflush(stdout);
  std::vector<Row> rows;
  for (int world = o.from; world <= most; world *= 2) {
    if (isatty(STDERR_FILENO) != 0) fmt::print(stderr, "predicting {} GPUs ...\r", world);
    rows.push_back(predict(o, topology, compute, buckets, world));
    print_row(o, compute, rows.back());
  }
  fmt::print("\npredicted, not measured\n");
  if (!o.svg.empty()) draw(o, topology, model, rows);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("scaling", [&] { return run(argc, argv); });
}
