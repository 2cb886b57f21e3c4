// What a training run leaves behind: its folder, runs/20260131-174503/ and never one that is in
// use, and in it metrics.jsonl, one JSON object a line, flushed line by line: a run that dies
// leaves every finished step behind, and `tail -f` follows a run that lives.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "runtime/checkpoint/safetensors.hpp"

namespace ringsmith::apps {

constexpr const char* kCheckpoints = "checkpoints";  // the folder of them, in the run's folder

// Creates a new folder and returns its path. An empty `wanted` makes runs/<stamp>, with -2, -3, ...
// behind the stamp if another run took it in the same second; else exactly `wanted`, which must not
// exist or must be empty, but for a folder for checkpoints that holds none. UsageError with the
// reason and the remedy when that cannot be.
[[nodiscard]] std::string create_run_dir(const std::string& wanted);
// A folder that ranks share: made if missing, whatever it holds. True if this call made it.
bool share_run_dir(const std::string& wanted);
// As create_run_dir(), or a folder of a run that kept checkpoints.
[[nodiscard]] std::string reopen_run_dir(const std::string& wanted);
[[nodiscard]] bool holds_checkpoints(const std::string& folder);

// UsageError or Error if the model could not be saved in the folder now: to be called before it is
// trained.
void require_room_for_model(const std::string& folder, const StateDict& model);
// Writes FOLDER/model.safetensors. If that fails, hours of training are not lost: the model is
// written into the working directory, or TMPDIR, and the error names the file.
void save_model(const std::string& folder, const StateDict& model, const Metadata& metadata);

class JsonLines {
 public:
  // Creates the file; UsageError naming it if it exists or cannot be written.
  explicit JsonLines(const std::string& path);
  // Goes on with what an earlier run may have left: of its lines, those up to this step stay.
  JsonLines(const std::string& path, std::int64_t step);
  // NaN and infinities become null, which JSON demands. Error naming the file if the line could not
  // be written, for instance on a full disk.
  void write(const nlohmann::ordered_json& object);

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace ringsmith::apps
