// Checkpoints as safetensors files: readable by any tool that knows the format, and safe to read
// from strangers, since a file holds numbers and no code.
//
//   +--------------+--------------------------------------+------------------------+
//   | n, 8 bytes,  | JSON of n bytes, padded with spaces: | the tensors' bytes,    |
//   | little-endian| name -> dtype, shape, [begin, end)   | row-major, no gaps     |
//   +--------------+--------------------------------------+------------------------+
//
// Writing is atomic: the file appears under its name complete and on the disk, or not at all; a
// crash leaves the previous checkpoint as it was. Reading trusts nothing in the file.
#pragma once

#include <map>
#include <string>

#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

// What a module or an optimizer saves, and what a checkpoint file holds.
using StateDict = std::map<std::string, Tensor>;
using Metadata = std::map<std::string, std::string>;

struct Checkpoint {
  StateDict tensors;
  Metadata metadata;
};

// Tensors of any device. UsageError naming the path and the reason if the file cannot be written.
void save_safetensors(const std::string& path, const StateDict& tensors,
                      const Metadata& metadata = {});

// Tensors on the CPU. UsageError naming the path and the fault if the file is not a well-formed
// safetensors file.
[[nodiscard]] Checkpoint load_safetensors(const std::string& path);

}  // namespace ringsmith
