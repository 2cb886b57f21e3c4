// Statistics of DistributedDataParallel, for diagnosis and tests. Most names are taken from
// PyTorch's _get_ddp_logging_data(). Sizes are in bytes, times in nanoseconds.
//
//   of the model     num_parameter_tensors total_parameter_size_bytes dtypes
//   of the options   bucket_cap_bytes first_bucket_bytes broadcast_buffers find_unused_parameters
//                    static_graph comm_hook overlap join_uneven_inputs
//   of the buckets   bucket_sizes rebuilt_bucket_sizes rebuilt_per_bucket_param_indices
//                    has_rebuilt_buckets prev_iteration_grad_ready_order_indices
//   of the last synchronised backward
//                    iteration unused_parameter_size backward_compute_time backward_comm_time
//                    backward_compute_comm_overlap_time exposed_comm_time
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ringsmith {

using LoggingData = std::vector<std::pair<std::string, std::string>>;

[[nodiscard]] std::string to_text(const LoggingData& data);

}  // namespace ringsmith
