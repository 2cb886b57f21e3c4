// What the measuring programs print: the table in the manner of nccl-tests, or one JSON object.
#pragma once

#include <cstdio>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "labs/apps/common/perf_timing.hpp"
#include "runtime/comm/analysis/cost.hpp"

namespace ringsmith::apps {

class PerfReport {
 public:
  // Collective. Rank 0 prints.
  PerfReport(const Benchmark& benchmark, const PerfOptions& options, comm::ProcessGroup& group);

  // model: where the predictions come from; empty: there are none.
  void header(const std::string& model, const std::vector<comm::SizedChoice>& choices = {});
  // Measurements that were not asked for are null.
  void row(const Shape& shape, const Measurement* out, const Measurement* in, double predicted);
  int footer();  // the exit code

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    if (!table_) return;
    fmt::print(format, std::forward<Args>(args)...);
    fmt::print("\n");
    std::fflush(stdout);
  }
  void ranks();

  const Benchmark& benchmark_;
  const PerfOptions& options_;
  comm::ProcessGroup& group_;
  bool table_ = false;
  bool predicted_ = false;
  nlohmann::json json_;
  std::int64_t wrong_ = 0;
  double busbw_ = 0;
  int measured_ = 0;
};

}  // namespace ringsmith::apps
