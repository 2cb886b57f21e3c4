// The files of a training run, in a folder such as runs/20260131-174503. A folder that is not empty
// is rejected, but --resume auto accepts a folder with checkpoints, and --per-step accepts any
// folder. metrics.jsonl is flushed after each line, so that every finished step is recorded even if
// the run dies, and `tail -f` can follow the run.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "runtime/checkpoint/safetensors.hpp"

namespace ringsmith::apps {

constexpr const char* kCheckpoints = "checkpoints";  // their folder, in the run's folder

// Creates a new folder and returns its path: runs/<stamp> if `wanted` is empty, with -2, -3, ...
// appended if the name is taken; otherwise `wanted`, which must not exist or must be empty, except
// for a checkpoint folder without checkpoints. Throws UsageError with the reason and the remedy.
[[nodiscard]] std::string create_run_dir(const std::string& wanted);
// Creates a folder that ranks share, or uses an existing one, whatever it contains. Returns true if
// the folder was created.
bool share_run_dir(const std::string& wanted);
// Like create_run_dir(), but also accepts the folder of a run with checkpoints.
[[nodiscard]] std::string reopen_run_dir(const std::string& wanted);
[[nodiscard]] bool holds_checkpoints(const std::string& folder);

// Throws UsageError or Error if the model could not be saved in the folder now.
void require_room_for_model(const std::string& folder, const StateDict& model);
// Writes FOLDER/model.safetensors. If that fails, writes the model into the working directory or
// TMPDIR, and throws an Error naming that file.
void save_model(const std::string& folder, const StateDict& model, const Metadata& metadata);

class JsonLines {
 public:
  // Throws UsageError naming the file if it exists or cannot be created.
  explicit JsonLines(const std::string& path);
  // Continues an earlier run's file, if there is one: keeps its lines up to this step.
  JsonLines(const std::string& path, std::int64_t step);
  // NaN and infinities become null. Throws an Error naming the file.
  void write(const nlohmann::ordered_json& object);

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace ringsmith::apps
