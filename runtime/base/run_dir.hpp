// The folder that a training run leaves behind: runs/20260131-174503/, never one that is in use.
#pragma once

#include <string>

namespace ringsmith {

// Creates a new folder and returns its path. An empty `wanted` makes runs/<stamp>, with -2, -3, ...
// behind the stamp if another run took it in the same second; else exactly `wanted`, which must not
// exist or must be empty. UsageError with the reason and the remedy when that cannot be.
[[nodiscard]] std::string create_run_dir(const std::string& wanted);

}  // namespace ringsmith
