#include "runtime/launch/environment.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "runtime/comm/bootstrap/store/door.hpp"
#include "runtime/comm/bootstrap/store/secret.hpp"

namespace ringsmith::launch {

namespace {

// A ringrun started by mpirun or srun is a launcher, not a rank: its own place must not be taken
// for that of its ranks. RINGSMITH_MEETING_DIR would have them meet elsewhere.
constexpr std::array<std::string_view, 6> kDropped{
    "OMPI_COMM_WORLD_",        "PMIX_", "PMI_", "RINGSMITH_MEETING_DIR", "RINGSMITH_SECRET_FILE",
    comm::store::kDoorVariable};

bool dropped(std::string_view name) {
  return std::any_of(kDropped.begin(), kDropped.end(), [name](std::string_view start) {
    return name.substr(0, start.size()) == start;
  });
}

}  // namespace

std::vector<std::string> rank_environment(const std::vector<std::string>& inherited,
                                          const RankPlace& place, const StorePlace& store) {
  std::map<std::string, std::string> ours{
      {"RANK", std::to_string(place.rank)},
      {"WORLD_SIZE", std::to_string(place.world)},
      {"LOCAL_RANK", std::to_string(place.local_rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(place.local_world)},
      {"GROUP_RANK", std::to_string(place.node)},
      {"GROUP_WORLD_SIZE", std::to_string(place.nodes)},
      {"MASTER_ADDR", store.address},
      {"MASTER_PORT", std::to_string(store.port)},
      {"RINGSMITH_STORE", "launcher"},
      {comm::kSecretVariable, store.secret},
  };
  if (!store.door.empty()) ours[comm::store::kDoorVariable] = store.door;
  std::vector<std::string> out;
  bool threads_chosen = false;
  for (const std::string& variable : inherited) {
    const std::string name = variable.substr(0, variable.find('='));
    if (dropped(name) || ours.count(name) != 0) continue;
    threads_chosen = threads_chosen || name == "OMP_NUM_THREADS";
    out.push_back(variable);
  }
  if (!threads_chosen && place.local_world > 1) ours["OMP_NUM_THREADS"] = "1";
  for (const auto& [name, value] : ours) out.emplace_back(name).append("=").append(value);
  return out;
}

}  // namespace ringsmith::launch
