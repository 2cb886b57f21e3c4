// The options of all programs with a process group: how the ranks are started, find each other and
// choose their devices.
#pragma once

#include <array>
#include <string>

#include "runtime/comm/process_group.hpp"

namespace ringsmith::apps {

class CommandLine;

#ifdef RINGSMITH_VGPU
constexpr bool kEmulatedDevices = true;
#else
constexpr bool kEmulatedDevices = false;
#endif

struct JobOptions {
  std::string bootstrap = "auto";
  std::string transport = "auto";
  std::string interface;  // for tcp and rdma
  int sockets = 1;        // for tcp
  bool checksum = false;  // for tcp
  int ranks_per_node = 0;
  std::string flight_dir;
  double timeout = 30;  // seconds; each program adds this option itself
  // The bootstrap compares these across the ranks: every option except those in kMayDiffer.
  comm::Settings settings;
};

// The options that may differ between ranks. For input files, the ranks compare the contents
// instead.
inline constexpr std::array kMayDiffer{
    "--bootstrap",   "--interface", "--device",   "--workers",      // placement
    "--data",        "--images",    "--labels",   "--test-images",  // inputs
    "--test-labels", "--tokens",    "--vocab",    "--weights",     "--run-dir",
    "--flight-dir",  "--json-file", "--progress", "--json"};  // outputs

// Adds --bootstrap, --transport, --interface, --sockets and --checksum, whose defaults are the
// values in o. Also makes parse() fill o.settings.
void add_meeting_options(CommandLine& app, JobOptions& o);
// Adds --ranks-per-node and --flight-dir; `otherwise` describes the default of --flight-dir.
void add_node_options(CommandLine& app, JobOptions& o, const std::string& otherwise);

[[nodiscard]] comm::GroupOptions group_options(const JobOptions& o);

// Returns the device that --device selects: cpu, cuda:NUMBER, or cuda. With cuda, the ranks of a
// host (processes or threads) take its devices round-robin. Throws UsageError if the name is
// invalid or the device does not exist.
[[nodiscard]] Device device_of_rank(const std::string& name, int ranks_per_process = 1,
                                    int thread = 0);

// Paragraphs for the footer of --help.
[[nodiscard]] std::string how_to_start();
[[nodiscard]] std::string starting_variables();

}  // namespace ringsmith::apps
