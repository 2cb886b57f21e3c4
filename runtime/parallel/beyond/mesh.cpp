#include "runtime/parallel/beyond/mesh.hpp"

#include <string>

#include "runtime/base/error.hpp"

namespace ringsmith {

Mesh make_mesh(comm::ProcessGroup& group, const MeshShape& shape) {
  require(shape.tensor >= 1 && shape.pipeline >= 1,
          "mesh: " + std::to_string(shape.tensor) + " parts and " + std::to_string(shape.pipeline) +
              " stages: both must be at least 1");
  require(group.size() % shape.ranks_per_model() == 0,
          "mesh: " + std::to_string(group.size()) + " ranks cannot be divided into models of " +
              std::to_string(shape.tensor) + " parts x " + std::to_string(shape.pipeline) +
              " stages; start a multiple of " + std::to_string(shape.ranks_per_model()) + " ranks");
  const int replicas = group.size() / shape.ranks_per_model();
  const int part = group.rank() % shape.tensor;
  const int replica = group.rank() / shape.tensor % replicas;
  const int stage = group.rank() / shape.tensor / replicas;
  Mesh mesh;
  mesh.tensor = group.split(stage * replicas + replica);
  mesh.data = group.split(stage * shape.tensor + part);
  mesh.pipeline = group.split(replica * shape.tensor + part);
  return mesh;
}

}  // namespace ringsmith
