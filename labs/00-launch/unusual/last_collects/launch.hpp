// Unusual and correct: a random name instead of a claimed one, and a cleanup at launch's two exits,
// from a table of processes, instead of in a destructor.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "labs/kit/nodes/nodes.hpp"

namespace lab00 {

struct Outcome {
  int failed = -1;
  int code = 0;
};

inline std::string claim_name(kit::Folder&) {
  std::random_device random;
  std::string name = "j";
  for (int i = 0; i < 4; ++i) name += std::to_string(random()) + "-";
  return name;
}

inline void clear_away(kit::Nodes& nodes, std::vector<int>& processes, const std::string& job) {
  for (const int process : processes)
    if (process > 0) nodes.end(process);
  for (const int process : processes)
    if (process > 0) nodes.wait(process);
  for (const std::string& file : nodes.folder().list())
    if (file.compare(0, job.size(), job) == 0) nodes.folder().remove(file);
}

inline Outcome launch(kit::Nodes& nodes, const std::vector<kit::Slots>& where) {
  std::vector<std::string> hosts;
  for (const kit::Slots& slots : where) hosts.insert(hosts.end(), slots.count, slots.node);
  const std::string job = claim_name(nodes.folder());
  std::vector<int> processes;  // index: rank; 0 after wait() has returned it
  try {
    for (const std::string& host : hosts)
      processes.push_back(nodes.start(host, {job, int(processes.size()), int(hosts.size())}));
  } catch (...) {
    clear_away(nodes, processes, job);
    throw;
  }
  Outcome outcome;
  for (std::size_t left = hosts.size(); left > 0 && outcome.failed < 0; --left) {
    const kit::Ended ended = nodes.wait();
    int rank = 0;
    while (processes[std::size_t(rank)] != ended.process) ++rank;
    processes[std::size_t(rank)] = 0;
    if (const int code = ended.signal ? 128 + ended.signal : ended.code) outcome = {rank, code};
  }
  clear_away(nodes, processes, job);
  return outcome;
}

}  // namespace lab00
