// A training at the end of a step, and the folder that holds it.
//
//   step-000200/
//     model.safetensors       \  a StateDict each, by its name
//     optimizer.safetensors   /
//     state.json                 what is no tensor: text by name
//     manifest.json              written last: step; size and SHA-256 of each file, and of itself
//
// The folder counts only with a manifest, and only if all is there that the manifest names. Every
// file is written by fsync and rename (atomic_file.hpp) before the manifest is, so kill -9, a power
// cut and a full disk leave a folder without one; a disk that lost or changed bytes later is found
// by the digests. `sha256sum` prints the same.
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
  std::int64_t step = 0;                     // finished
  std::map<std::string, StateDict> tensors;  // by a name that a file can have: "model"
  Metadata values;
};

// On return it is on the disk, in the folder `path`, whose parent exists. What an attempt that was
// cut short has left there is removed before; what this attempt has written is, if it fails. Throws
// as AtomicFile.
void write_snapshot(const std::string& path, const Snapshot& snapshot);

// Its tensors on the CPU. UsageError naming the folder, the file in it and the fault, unless every
// byte is what the manifest says.
[[nodiscard]] Snapshot read_snapshot(const std::string& path);

// "step-000200", and the folders of that form in `folder`, by step. None if there is no `folder`.
[[nodiscard]] std::string snapshot_name(std::int64_t step);
[[nodiscard]] std::vector<std::pair<std::int64_t, std::string>> list_snapshots(
    const std::string& folder);

// The newest of those that can be used; none if there is none. One that cannot is skipped, with its
// path and why. examine: throws UsageError for one that is whole and still of no use.
[[nodiscard]] std::optional<Snapshot> newest_snapshot(
    const std::string& folder,
    const std::function<void(const std::string& path, const std::string& why)>& skipped,
    const std::function<void(const Snapshot&)>& examine);

// Whether the writing of such a folder was not cut short; says nothing of its other files.
[[nodiscard]] bool has_manifest(const std::string& path);

// Removes such a folder, its manifest first, so that what a kill leaves of it does not count.
// Whatever cannot be removed stays.
void remove_snapshot(const std::string& path) noexcept;

}  // namespace ringsmith
