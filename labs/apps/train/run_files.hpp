// The files of a training run. Its folder is runs/20260131-174503/, say; one with other contents is
// refused, except by --resume auto and --per-step. metrics.jsonl in it has one JSON object per line
// and is flushed after each line, so that a run that dies leaves every finished step behind and
// `tail -f` can follow a running one.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "runtime/checkpoint/safetensors.hpp"

namespace ringsmith::apps {

constexpr const char* kCheckpoints = "checkpoints";  // their folder, in the run's folder

// Creates a new folder and returns its path. If `wanted` is empty, it is runs/<stamp>, with -2, -3,
// ... appended if another run took the name in the same second; else it is exactly `wanted`, which
// must not exist or must be empty, except for a checkpoint folder without checkpoints. Throws
// UsageError with the reason and the remedy if that is not possible.
[[nodiscard]] std::string create_run_dir(const std::string& wanted);
// Creates a folder that ranks share. An existing folder is used, whatever it contains. Returns true
// if the folder was created.
bool share_run_dir(const std::string& wanted);
// Like create_run_dir(), but also accepts the folder of a run with checkpoints.
[[nodiscard]] std::string reopen_run_dir(const std::string& wanted);
[[nodiscard]] bool holds_checkpoints(const std::string& folder);

// Throws UsageError or Error if the model could not be saved in the folder now. Call this before
// the training.
void require_room_for_model(const std::string& folder, const StateDict& model);
// Writes FOLDER/model.safetensors. If that fails, the model is written into the working directory
// or TMPDIR instead, so that hours of training are not lost, and the error names the file.
void save_model(const std::string& folder, const StateDict& model, const Metadata& metadata);

class JsonLines {
 public:
  // Creates the file. Throws UsageError naming it if it exists or cannot be written.
  explicit JsonLines(const std::string& path);
  // Continues an earlier run's file, if there is one: keeps its lines up to this step.
  JsonLines(const std::string& path, std::int64_t step);
  // NaN and infinities become null, as JSON requires. Throws an Error naming the file if the line
  // could not be written, for instance on a full disk.
  void write(const nlohmann::ordered_json& object);

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace ringsmith::apps
