// How the ranks of a program are started, find each other and take their devices: the options of
// all programs that form a group, and what --help says about them.
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
  std::string interface;  // of tcp and rdma
  int sockets = 1;        // of tcp
  bool checksum = false;  // of tcp
  int ranks_per_node = 0;
  std::string flight_dir;
  double timeout = 30;  // seconds; the programs add the option themselves
  // The program's settings, which the ranks compare when they meet: every option except those in
  // kMayDiffer.
  comm::Settings settings;
};

// The options that may differ from rank to rank. Of files the contents are compared, not the paths.
inline constexpr std::array kMayDiffer{
    "--bootstrap",   "--interface", "--device",   "--workers",      // where it is
    "--data",        "--images",    "--labels",   "--test-images",  // its inputs
    "--test-labels", "--tokens",    "--vocab",    "--weights",     "--run-dir",
    "--flight-dir",  "--json-file", "--progress", "--json"};  // its outputs

// --bootstrap, --transport, --interface, --sockets and --checksum; the values in o are the
// defaults. From here on the program's options are compared.
void add_meeting_options(CommandLine& app, JobOptions& o);
// --ranks-per-node and --flight-dir; `otherwise` says where the files go without the latter.
void add_node_options(CommandLine& app, JobOptions& o, const std::string& otherwise);

[[nodiscard]] comm::GroupOptions group_options(const JobOptions& o);

// What --device says: cpu, cuda:NUMBER, or cuda: the ranks of a host, each a process or one thread
// of it, take its devices in turn. UsageError if there is no such device.
[[nodiscard]] Device device_of_rank(const std::string& name, int ranks_per_process = 1,
                                    int thread = 0);

// Paragraphs for the footer of --help.
[[nodiscard]] std::string how_to_start();
[[nodiscard]] std::string starting_variables();

}  // namespace ringsmith::apps
