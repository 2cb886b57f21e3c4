// Trains a GPT that is split among several ranks (--tensor-parallel, --pipeline), with
// DistributedDataParallel between the replicas.
//
//   8 ranks, --tensor-parallel 2 --pipeline 2: two replicas of four ranks (mesh.hpp)
//
// A microbatch is a batch of --batch samples. A step of M microbatches has the samples, and with
// --pipeline alone the bits, of --accumulate M without a pipeline.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "labs/apps/common/command_line.hpp"
#include "labs/apps/train/data.hpp"
#include "labs/apps/train/run.hpp"
#include "runtime/parallel/beyond/gpt_stage.hpp"
#include "runtime/parallel/beyond/pipeline.hpp"

namespace ringsmith::apps {

struct MeshOptions {
  MeshShape shape;
  bool split_sequence = false;
  std::int64_t microbatches = 1;
  std::string schedule = "1f1b";
  [[nodiscard]] bool given() const { return shape.ranks_per_model() > 1; }
};

void add_mesh_options(CommandLine& app, MeshOptions& o);
// Sets the options that --microbatches replaces. Throws UsageError if an option needs a mesh that
// is not given, or cannot be combined with it.
void apply_mesh(const MeshOptions& o, TrainOptions& common);

class MeshModel : public Module {
 public:
  // Collective over the ranks of `mesh`.
  MeshModel(std::unique_ptr<GPT> whole, const Mesh& mesh, const MeshOptions& options);

  // Evaluates the whole model, without a graph: collective over the ranks of a replica,
  // which must pass equal tokens. Returns the logits on all of them.
  Tensor forward(const Tensor& tokens) override;

  // Collective. Like accumulate_gradients() (accumulate.hpp), but runs the next group of batches
  // through the pipeline. Returns this replica's loss. ddp: of stage(), over mesh.data.
  double accumulate(TrainingRun& run, DistributedDataParallel& ddp, Batches& batches,
                    const TrainOptions& common, Device device);

  [[nodiscard]] GptStage& stage() { return stage_; }
  [[nodiscard]] const Mesh& mesh() const { return mesh_; }

 private:
  Mesh mesh_;
  MeshOptions options_;
  GptStage stage_;
  Pipeline pipeline_;
};

}  // namespace ringsmith::apps
