// Mesh: the ranks of a job as a block of three axes, with a process group along each.
//
//   8 ranks, tensor 2, pipeline 2: 2 replicas       rank = (stage * replicas + replica) * parts
//                                                          + part
//                replica 0    replica 1
//     stage 0    0 1          2 3                   tensor    {0, 1} {2, 3} {4, 5} {6, 7}
//     stage 1    4 5          6 7                   data      {0, 2} {1, 3} {4, 6} {5, 7}
//                                                   pipeline  {0, 4} {1, 5} {2, 6} {3, 7}
//
// The ranks of a tensor group communicate most (four all-reduces of the activations per block), so
// they are neighbours, which share a node. The ranks of a pipeline group communicate least, so they
// are furthest apart. A rank's coordinates are its ranks in the groups: part, replica and stage.
#pragma once

#include <memory>

#include "runtime/comm/process_group.hpp"

namespace ringsmith {

struct MeshShape {
  int tensor = 1;    // ranks that split each block
  int pipeline = 1;  // stages
  [[nodiscard]] int ranks_per_model() const { return tensor * pipeline; }
};

struct Mesh {
  std::shared_ptr<comm::ProcessGroup> tensor;    // the parts of this stage of this replica
  std::shared_ptr<comm::ProcessGroup> data;      // the replicas of this part of this stage
  std::shared_ptr<comm::ProcessGroup> pipeline;  // the stages of this replica, for this part

  [[nodiscard]] int part() const { return tensor->rank(); }
  [[nodiscard]] int replica() const { return data->rank(); }
  [[nodiscard]] int stage() const { return pipeline->rank(); }
  [[nodiscard]] int parts() const { return tensor->size(); }
  [[nodiscard]] int replicas() const { return data->size(); }
  [[nodiscard]] int stages() const { return pipeline->size(); }
  [[nodiscard]] bool is_first_stage() const { return stage() == 0; }
  [[nodiscard]] bool is_last_stage() const { return stage() == stages() - 1; }
};

// Collective. Throws UsageError on every rank if the shape is not positive, or if its ranks do not
// divide the group.
[[nodiscard]] Mesh make_mesh(comm::ProcessGroup& group, const MeshShape& shape);

}  // namespace ringsmith
