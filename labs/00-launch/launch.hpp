// Lab 00, part 1: start the processes of a job, and supervise them to the end.
//
//     slots: a 2, b 3          node a: rank 0, 1      node b: rank 2, 3, 4      world 5
//
//     launcher   start ... start | wait .... rank 3 ended with 7 | end the others | wait for them
//
// The hard part of a launcher is failure: one rank fails, and the others would wait for it forever;
// two people start the same job on the same node in the same second; a promised node does not
// exist. In every case, the job leaves no process, no zombie and no file behind.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "labs/kit/nodes/nodes.hpp"
#include "labs/kit/todo.hpp"

namespace lab00 {

// Result of a job. Success is {-1, 0}. Otherwise `failed` is the rank that failed first, and `code`
// is its exit code, or 128 + the number of the signal that killed it, as in a shell.
struct Outcome {
  int failed = -1;
  int code = 0;
};

// Task 1. Returns a name for the job that no other job in this folder has, neither one that starts
// at this moment nor one that was killed yesterday and left its files here. The names of all files
// of a job begin with the job's name, so no job's name may be a prefix of another's.
inline std::string claim_name(kit::Folder& folder) {
#ifdef SOLUTION
  // Creating the file claims the name. Checking first and creating it later would be a race.
  for (int number = 0;; ++number) {
    const std::string name = "job" + std::to_string(number) + ".";
    if (folder.create(name + "claim", kit::host_name())) return name;
  }
#else
  (void)folder;
  kit::todo("task 1, claim_name");
#endif
}

#ifdef SOLUTION
// The processes of a job that have not been waited for. The destructor ends them and then removes
// the job's files, whether launch returns or throws.
struct Job {
  kit::Nodes& nodes;
  std::string name;
  std::map<int, int> rank_of = {};  // process number -> rank

  Job(kit::Nodes& where, std::string own) : nodes(where), name(std::move(own)) {}
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() {
    for (const auto& [process, rank] : rank_of) nodes.end(process);
    for (const auto& [process, rank] : rank_of) nodes.wait(process);
    const std::string claim = name + "claim";
    for (const std::string& file : nodes.folder().list())
      if (file.starts_with(name) && file != claim) nodes.folder().remove(file);
    nodes.folder().remove(claim);  // last: from here on, another job may have the name
  }
};

#endif
// Task 2. Starts the job's program once for each slot, and returns when the job is over. Ranks are
// numbered through the nodes in the given order; a node may have no slots. As soon as a process
// fails (nonzero exit code or signal), the job is over. Exceptions from start propagate.
inline Outcome launch(kit::Nodes& nodes, const std::vector<kit::Slots>& where) {
#ifdef SOLUTION
  int world = 0;
  for (const kit::Slots& slots : where) world += slots.count;
  Job job(nodes, claim_name(nodes.folder()));
  for (const kit::Slots& slots : where)
    for (int i = 0; i < slots.count; ++i) {
      const int rank = int(job.rank_of.size());
      job.rank_of[nodes.start(slots.node, {job.name, rank, world})] = rank;
    }
  while (!job.rank_of.empty()) {
    const kit::Ended ended = nodes.wait();  // for any process: not for rank 0, then rank 1
    const int rank = job.rank_of.at(ended.process);
    job.rank_of.erase(ended.process);
    if (ended.signal != 0) return {rank, 128 + ended.signal};
    if (ended.code != 0) return {rank, ended.code};
  }
  return {};
#else
  const std::string name = claim_name(nodes.folder());
  (void)name, (void)where;
  kit::todo("task 2, launch");
#endif
}

}  // namespace lab00
