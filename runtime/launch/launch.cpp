#include "runtime/launch/launch.hpp"

#include <filesystem>

#include "runtime/base/error.hpp"
#include "runtime/launch/process.hpp"
#include "runtime/launch/supervisor.hpp"

namespace ringsmith::launch {

namespace {

namespace fs = std::filesystem;

// The node's own folder, new or empty: nothing of an earlier job is written over.
std::string make_log_folder(const LaunchOptions& o) {
  if (o.log_folder.empty()) return {};
  fs::path folder = o.log_folder;
  if (o.nodes > 1) folder /= "node-" + std::to_string(o.node);
  std::error_code error;
  fs::create_directories(folder, error);
  require(!error, "cannot make --log-dir '" + folder.string() + "': " + error.message());
  require(fs::is_empty(folder, error) && !error,
          "--log-dir '" + folder.string() + "' is not empty; nothing is overwritten: name another");
  return folder;
}

}  // namespace

int launch(const LaunchOptions& asked) {
  LaunchOptions options = asked;
  const std::string program = find_program(options.command.at(0));
  options.log_folder = make_log_folder(options);
  Guardian guardian;  // forks, so it comes before all threads
  Nodes nodes(options);
  return Supervisor(options, guardian, nodes).run(program);
}

}  // namespace ringsmith::launch
