// Checkpoints as safetensors files: readable by every tool that knows the format, and safe to read
// from untrusted sources, because a file contains numbers but no code.
//
//   +--------------+--------------------------------------+------------------------+
//   | n, 8 bytes,  | JSON of n bytes, padded with spaces: | the tensors' bytes,    |
//   | little-endian| name -> dtype, shape, [begin, end)   | row-major, no gaps     |
//   +--------------+--------------------------------------+------------------------+
//
// Writing is atomic: the file appears under its name only when it is complete and on the disk.
// Reading verifies everything in the file.
#pragma once

#include <map>
#include <string>

#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

// The state of a module or an optimizer, and the contents of a checkpoint file.
using StateDict = std::map<std::string, Tensor>;
using Metadata = std::map<std::string, std::string>;

struct Checkpoint {
  StateDict tensors;
  Metadata metadata;
};

// Tensors may be on any device. Throws UsageError if a tensor is undefined or a name is not
// allowed, and AtomicFile's errors if writing fails.
void save_safetensors(const std::string& path, const StateDict& tensors,
                      const Metadata& metadata = {});

// Returns tensors on the CPU. Throws UsageError naming path and fault unless the file is a
// well-formed safetensors file.
[[nodiscard]] Checkpoint load_safetensors(const std::string& path);

}  // namespace ringsmith
