// The state of a training run at the end of a step, and the folder in which it is stored.
//
//   step-000200/
//     model.safetensors       \  a StateDict each, by its name
//     optimizer.safetensors   /
//     state.json                 values other than tensors: text by name
//     manifest.json              written last: step, size and SHA-256 of each file, own SHA-256
//
// The snapshot is valid only if the folder has a manifest and all files named in it are intact.
// Every file is written with fsync and rename (atomic_file.hpp) before the manifest, so kill -9, a
// power cut or a full disk leaves at worst a folder without a manifest. The digests (of
// `sha256sum`) detect bytes that are later lost or changed on the disk.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/checkpoint/safetensors.hpp"

namespace ringsmith {

struct Snapshot {
  std::int64_t step = 0;                     // completed
  std::map<std::string, StateDict> tensors;  // by a valid file name, e.g. "model"
  Metadata values;
};

// Writes a snapshot, which is on the disk on return, to the folder `path`, whose parent must exist.
// A complete snapshot that is already there remains until the new snapshot, in `path`.new, is
// complete. Removes the remains of an earlier attempt before writing, and its own files if writing
// fails. Throws AtomicFile's errors.
void write_snapshot(const std::string& path, const Snapshot& snapshot);

// Returns tensors on the CPU. Throws UsageError naming the folder, the file and the fault unless
// every byte matches the manifest.
[[nodiscard]] Snapshot read_snapshot(const std::string& path);

[[nodiscard]] std::string snapshot_name(std::int64_t step);  // e.g. "step-000200"
// Steps and paths of the folders with such names, sorted by step; none if `folder` does not exist.
[[nodiscard]] std::vector<std::pair<std::int64_t, std::string>> list_snapshots(
    const std::string& folder);

// Returns the newest usable snapshot, if any. Unusable ones are skipped and reported with path and
// reason. `examine` must throw UsageError for a snapshot that is intact but cannot be used.
[[nodiscard]] std::optional<Snapshot> newest_snapshot(
    const std::string& folder,
    const std::function<void(const std::string& path, const std::string& why)>& skipped,
    const std::function<void(const Snapshot&)>& examine);

// True if the folder has a manifest. Its other files are not checked.
[[nodiscard]] bool has_manifest(const std::string& path);

// Removes a snapshot's folder, the manifest first, so that a partly removed folder does not count
// as a snapshot. Files that cannot be removed are left.
void remove_snapshot(const std::string& path) noexcept;

}  // namespace ringsmith
