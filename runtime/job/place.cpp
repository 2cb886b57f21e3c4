#include "runtime/job/place.hpp"

#include <charconv>
#include <cstdlib>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/job/store/door.hpp"

namespace ringsmith::comm {

namespace {

constexpr int kMostRanks = 1 << 20;

// For srun without reserved ports: the port, computed from the job's and step's numbers, is below
// the ephemeral ports.
constexpr int kFirstSlurmPort = 20'000, kSlurmPorts = 10'000;

std::string value(const Environment& environment, const char* name) {
  const char* const text = environment(name);
  return text != nullptr ? text : "";
}

bool is_set(const Environment& environment, const char* name) {
  return environment(name) != nullptr;
}

int number(const Environment& environment, const char* name, int least, int most) {
  const std::string text = value(environment, name);
  int n = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  require(error == std::errc() && stop == text.data() + text.size() && n >= least && n <= most,
          std::string(name) + " is '" + text + "': it must be a whole number from " +
              std::to_string(least) + " to " + std::to_string(most));
  return n;
}

std::string listed(const std::vector<const char*>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i)
    out += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + std::string(names[i]);
  return out;
}

void require_all(const Environment& environment, BootstrapKind kind,
                 const std::vector<const char*>& names) {
  std::vector<const char*> set, missing;
  for (const char* name : names) (is_set(environment, name) ? set : missing).push_back(name);
  if (missing.empty()) return;
  const std::string remedy = ": start the program with ringrun, srun or mpirun, or set " +
                             std::string(missing.size() == 1 ? "it" : "them") +
                             ", or run it alone with --bootstrap self";
  const std::string how = "--bootstrap " + std::string(name_of(kind)) + ": ";
  require(!set.empty(),
          how + "expected in the environment, but not set: " + listed(missing) + remedy);
  throw UsageError(how + listed(set) + (set.size() == 1 ? " is" : " are") +
                   " set in the environment, but not " + listed(missing) + remedy);
}

void read_rank(const Environment& environment, JobPlace& place) {
  place.world = number(environment, "WORLD_SIZE", 1, kMostRanks);
  place.rank = number(environment, "RANK", 0, kMostRanks);
  require(place.rank < place.world, "RANK is " + std::to_string(place.rank) +
                                        ", but WORLD_SIZE is " + std::to_string(place.world) +
                                        ": ranks are numbered from 0");
}

JobPlace place_from_env(const Environment& environment) {
  require_all(environment, BootstrapKind::env,
              {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"});
  JobPlace place;
  place.kind = BootstrapKind::env;
  read_rank(environment, place);
  place.store = {value(environment, "MASTER_ADDR"),
                 tcp::parse_port("MASTER_PORT", value(environment, "MASTER_PORT"))};
  require(!place.store.host.empty(), "MASTER_ADDR is empty: give the address of rank 0's host");
  place.launcher_holds_store = value(environment, "RINGSMITH_STORE") == "launcher";
  if (place.launcher_holds_store) place.door = value(environment, store::kDoorVariable);
  place.bind = is_set(environment, "RINGSMITH_BIND") ? value(environment, "RINGSMITH_BIND")
                                                     : place.store.host;
  return place;
}

JobPlace place_from_file(const Environment& environment) {
  require_all(environment, BootstrapKind::file, {"RINGSMITH_MEETING_DIR", "RANK", "WORLD_SIZE"});
  JobPlace place;
  place.kind = BootstrapKind::file;
  read_rank(environment, place);
  place.folder = value(environment, "RINGSMITH_MEETING_DIR");
  require(!place.folder.empty(),
          "RINGSMITH_MEETING_DIR is empty: name a folder that all ranks see");
  return place;
}

std::uint16_t slurm_port(const Environment& environment) {
  if (is_set(environment, "MASTER_PORT"))
    return tcp::parse_port("MASTER_PORT", value(environment, "MASTER_PORT"));
  // srun --resv-ports: "12000-12003".
  const std::string reserved = value(environment, "SLURM_STEP_RESV_PORTS");
  if (!reserved.empty())
    return tcp::parse_port("SLURM_STEP_RESV_PORTS",
                           reserved.substr(0, reserved.find_first_of("-,")));
  const long job = std::atol(value(environment, "SLURM_JOB_ID").c_str());
  const long step = std::atol(value(environment, "SLURM_STEP_ID").c_str());
  return static_cast<std::uint16_t>(kFirstSlurmPort + (job * 7 + step) % kSlurmPorts);
}

JobPlace place_from_slurm(const Environment& environment) {
  require_all(environment, BootstrapKind::slurm,
              {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
               "SLURM_STEP_NODELIST"});
  JobPlace place;
  place.kind = BootstrapKind::slurm;
  place.world = number(environment, "SLURM_STEP_NUM_TASKS", 1, kMostRanks);
  place.rank = number(environment, "SLURM_PROCID", 0, place.world - 1);
  place.store.host = is_set(environment, "MASTER_ADDR")
                         ? value(environment, "MASTER_ADDR")
                         : first_host(value(environment, "SLURM_STEP_NODELIST"));
  place.store.port = slurm_port(environment);
  place.bind = is_set(environment, "RINGSMITH_BIND") ? value(environment, "RINGSMITH_BIND")
                                                     : place.store.host;
  return place;
}

BootstrapKind kind_shown_by(const Environment& environment) {
  const auto any = [&environment](const std::vector<const char*>& names) {
    for (const char* name : names)
      if (is_set(environment, name)) return true;
    return false;
  };
  if (any({"OMPI_COMM_WORLD_SIZE"})) return BootstrapKind::mpi;
  if (any({"RINGSMITH_MEETING_DIR"})) return BootstrapKind::file;
  if (any({"RANK", "WORLD_SIZE"})) return BootstrapKind::env;
  // sbatch and salloc also set most of Slurm's variables, for scripts that srun has not started.
  if (any({"SLURM_STEP_ID"})) return any({"PMIX_RANK"}) ? BootstrapKind::mpi : BootstrapKind::slurm;
  if (any({"MASTER_ADDR", "MASTER_PORT"}))
    return BootstrapKind::env;  // find_place() reports the missing variables
  return BootstrapKind::self;
}

int hint(const Environment& environment, const std::vector<const char*>& names) {
  for (const char* name : names)
    if (is_set(environment, name)) return std::atoi(environment(name));
  return 0;
}

}  // namespace

Environment process_environment() {
  return [](const char* name) -> const char* { return std::getenv(name); };
}

JobPlace find_place(BootstrapKind wanted, const Environment& environment) {
  if (wanted == BootstrapKind::automatic) wanted = kind_shown_by(environment);
  JobPlace place;
  switch (wanted) {
    case BootstrapKind::env:
      return place_from_env(environment);
    case BootstrapKind::slurm:
      return place_from_slurm(environment);
    case BootstrapKind::file:
      return place_from_file(environment);
    default:
      place.kind = wanted;
      return place;
  }
}

int rank_hint(const Environment& environment) {
  return hint(environment, {"OMPI_COMM_WORLD_RANK", "RANK", "SLURM_PROCID"});
}

int local_rank_hint(const Environment& environment) {
  return hint(environment, {"OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK", "SLURM_LOCALID"});
}

std::string first_host(const std::string& list) {
  const std::size_t bracket = list.find_first_of("[,");
  if (bracket == std::string::npos || list[bracket] == ',') return list.substr(0, bracket);
  const std::size_t end = list.find_first_of("-,]", bracket);
  const std::size_t close = list.find(']', bracket);
  require(end != std::string::npos && close != std::string::npos,
          "SLURM_STEP_NODELIST '" + list + "' is not a list of hosts");
  const std::size_t comma = list.find(',', close);
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1) +
         list.substr(close + 1, comma == std::string::npos ? comma : comma - close - 1);
}

}  // namespace ringsmith::comm
