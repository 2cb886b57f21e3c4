#include "runtime/parallel/ddp_logging.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/parallel/ddp.hpp"

namespace ringsmith {

namespace {

std::string sizes_of(const BucketPlan& plan) {
  std::vector<std::size_t> sizes;
  for (const BucketLayout& bucket : plan.buckets) sizes.push_back(bucket.size().value);
  return fmt::format("{}", fmt::join(sizes, ", "));
}

// The parameters of each bucket, e.g. "3 2, 1 0".
std::string members_of(const BucketPlan& plan) {
  std::string out;
  for (const BucketLayout& bucket : plan.buckets) {
    std::vector<int> members;
    for (const BucketSlot& slot : bucket.slots) members.push_back(slot.parameter);
    out += fmt::format("{}{}", out.empty() ? "" : ", ", fmt::join(members, " "));
  }
  return out;
}

std::string nanoseconds(double seconds) {
  return std::to_string(std::llround(std::max(seconds, 0.0) * 1e9));
}

}  // namespace

LoggingData DistributedDataParallel::logging_data() const {
  const auto flag = [](bool on) { return std::string(on ? "1" : "0"); };
  const Reducer& reducer = *reducer_;
  std::size_t bytes = 0, unused = 0;
  std::vector<std::string> dtypes;
  for (std::size_t p = 0; p < reducer.items().size(); ++p) {
    const BucketItem& item = reducer.items()[p];
    const std::size_t size = bytes_of(item.count, size_of(item.dtype)).value;
    bytes += size;
    if (!reducer.used(static_cast<int>(p))) unused += size;
    const std::string dtype(name_of(item.dtype));
    if (std::ranges::find(dtypes, dtype) == dtypes.end()) dtypes.push_back(dtype);
  }
  const ReducerOptions& options = reducer.options();
  const ReducerStatistics& last = statistics();
  const double first_launch = last.buckets.empty() ? 0 : last.buckets.front().launched;
  return {{"world_size", std::to_string(group_->size())},
          {"rank", std::to_string(group_->rank())},
          {"iteration", std::to_string(last.step)},
          {"num_parameter_tensors", std::to_string(reducer.items().size())},
          {"total_parameter_size_bytes", std::to_string(bytes)},
          {"dtypes", fmt::format("{}", fmt::join(dtypes, ", "))},
          {"bucket_cap_bytes", std::to_string(options.caps.rest.value)},
          {"first_bucket_bytes", std::to_string(options.caps.first.value)},
          {"broadcast_buffers", flag(options_.broadcast_buffers)},
          {"find_unused_parameters", flag(options.find_unused_parameters)},
          {"static_graph", flag(options.static_graph)},
          {"gradient_as_bucket_view", flag(true)},
          {"comm_hook", reducer.comm_hook()},
          {"overlap", flag(options.overlap)},
          {"join_uneven_inputs", flag(joined_)},
          {"has_rebuilt_buckets", flag(reducer.rebuilt())},
          {"bucket_sizes",
           sizes_of(initial_plan(reducer.items(), options.caps, options.find_unused_parameters))},
          {"rebuilt_bucket_sizes", reducer.rebuilt() ? sizes_of(reducer.plan()) : ""},
          {"rebuilt_per_bucket_param_indices", reducer.rebuilt() ? members_of(reducer.plan()) : ""},
          {"prev_iteration_grad_ready_order_indices",
           fmt::format("{}", fmt::join(reducer.last_ready_order(), ", "))},
          {"unused_parameter_size", std::to_string(last.step == 0 ? 0 : unused)},
          {"backward_compute_time", nanoseconds(last.compute_end)},
          {"backward_comm_time", nanoseconds(last.communication())},
          {"backward_compute_comm_overlap_time", nanoseconds(last.compute_end - first_launch)},
          {"exposed_comm_time", nanoseconds(last.exposed())}};
}

std::string to_text(const LoggingData& data) {
  std::string out;
  for (const auto& [name, value] : data) out += fmt::format("{}: {}\n", name, value);
  return out;
}

}  // namespace ringsmith
