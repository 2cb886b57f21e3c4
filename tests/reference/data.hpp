// Reference numbers, computed by PyTorch.
//
// They are stored in tests/reference/data, or in RINGSMITH_REFERENCE_DIR. Any other set of the same
// form (other seeds, shapes, worlds, numbers of cases) must pass, too. It may omit parts, which are
// reported as skipped.
//
//   index.json       {"torch", "seed", "ops": [case names], "optim": [run names]}
//   ops/CASE.json    one call: attributes, inputs, output, its vector-Jacobian products, an error
//   optim/RUN.json   20 steps of one optimizer
//   randperm.json, sampler.json, buckets.json, ddp.json
//   strict/RUN.json  a training run with DistributedDataParallel, every sum in plain scalar order
//   amp/             mixed precision; torch_amp.py describes and makes it
//   features/        other features of DDP; torch_ddp_features.py
//   models/          first steps of whole models; torch_models.py
//   sharded/         PyTorch 2.6's FSDP and tensor parallelism; torch_sharded.py
//
// A tensor is {"shape", "dtype": "f32"|"i64", "data": [row-major]}, or "npy": a file instead of
// data.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runtime/tensor/tensor.hpp"

namespace ringsmith::reference {

// Throws UsageError if RINGSMITH_REFERENCE_DIR is set but is not a directory.
[[nodiscard]] std::filesystem::path directory();
[[nodiscard]] bool is_shipped_set();  // the set in the repository, whose sizes are known

// Loads a file of the set by its path in directory(). Throws UsageError with the file's path if it
// is missing or cannot be parsed.
[[nodiscard]] nlohmann::json load(const std::string& name);
// True if the set has this file or directory. Throws UsageError if the repository's set lacks it;
// reports a part that another set lacks as skipped.
[[nodiscard]] bool has_part(const std::string& name);
// The sorted names (without ".json") of a subdirectory's files; empty if there is none.
[[nodiscard]] std::vector<std::string> list(const std::string& subdirectory);

[[nodiscard]] Tensor tensor(const nlohmann::json& entry);
[[nodiscard]] Tensor tensor_f32(const std::vector<float>& values, const Shape& shape);

}  // namespace ringsmith::reference
