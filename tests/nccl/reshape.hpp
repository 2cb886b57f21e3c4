// Communicators of later versions of NCCL: without a rank, with a new rank, and after a revocation.
// One thread drives all ranks of the process.
#pragma once

#include <vector>

#include "tests/nccl/checks.hpp"

namespace client {

struct Reshaped {
  const Rank* rank;
  ncclComm_t comm;
};

// Returns the number of wrong elements of an all-reduce in which new rank r contributes r + 1, and
// checks the ranks' numbers. Expects an error, and returns 0 for it, if `revoked`.
inline long long check_members(const std::vector<Reshaped>& members, bool revoked = false) {
  constexpr std::size_t kCount = 64;  // fits the smallest buffers
  const int world = static_cast<int>(members.size());
  ncclResult_t failed = ncclSuccess;
  for (int i = 0; i < world; ++i) {
    const Rank& r = *members[i].rank;
    const std::vector<float> ours(kCount, static_cast<float>(i + 1));
    CUDA(cudaSetDevice(r.device));
    CUDA(cudaMemcpy(r.send[0], ours.data(), kCount * sizeof(float), cudaMemcpyHostToDevice));
    int rank = -1, count = -1;
    NCCL(ncclCommUserRank(members[i].comm, &rank));
    NCCL(ncclCommCount(members[i].comm, &count));
    if (rank != i || count != world) give_up("reshape", "another rank or size", __LINE__);
  }
  NCCL(ncclGroupStart());
  for (const Reshaped& m : members) {
    const ncclResult_t code = ncclAllReduce(m.rank->send[0], m.rank->receive[0], kCount, ncclFloat,
                                            ncclSum, m.comm, m.rank->streams[0]);
    if (code != ncclSuccess) failed = code;
  }
  const ncclResult_t ended = ncclGroupEnd();
  if (ended != ncclSuccess) failed = ended;
  if (revoked) return failed == ncclSuccess ? 1 : 0;
  NCCL(failed);
  long long wrong = 0;
  for (const Reshaped& m : members) {
    std::vector<float> sums(kCount);
    CUDA(cudaSetDevice(m.rank->device));
    CUDA(cudaStreamSynchronize(m.rank->streams[0]));
    CUDA(cudaMemcpy(sums.data(), m.rank->receive[0], kCount * sizeof(float),
                    cudaMemcpyDeviceToHost));
    for (const float x : sums) wrong += x != static_cast<float>(world * (world + 1) / 2) ? 1 : 0;
  }
  return wrong;
}

inline void destroy(const std::vector<Reshaped>& members) {
  for (const Reshaped& m : members) NCCL(ncclCommDestroy(m.comm));
}

// The members without rank `gone`.
inline std::vector<Reshaped> without(const std::vector<Reshaped>& members, int gone, int flags) {
  std::vector<Reshaped> rest;
  for (std::size_t i = 0; i < members.size(); ++i)
    if (static_cast<int>(i) != gone) rest.push_back({members[i].rank, NULL});
  NCCL(ncclGroupStart());
  std::size_t next = 0;
  for (std::size_t i = 0; i < members.size(); ++i)
    if (static_cast<int>(i) != gone)
      NCCL(ncclCommShrink(members[i].comm, &gone, 1, &rest[next++].comm, NULL, flags));
  NCCL(ncclGroupEnd());
  return rest;
}

inline long long reshape(const std::vector<Rank>& ranks) {
  std::vector<Reshaped> all;
  for (const Rank& r : ranks) all.push_back({&r, r.second});
  const int world = static_cast<int>(all.size());
  if (world < 3) return 0;

  const std::vector<Reshaped> fewer = without(all, 1, NCCL_SHRINK_DEFAULT);
  long long wrong = check_members(fewer);
  const std::vector<Reshaped> again = without(fewer, 0, NCCL_SHRINK_DEFAULT);
  wrong += check_members(again);

  std::vector<Reshaped> more = fewer;  // and rank 1 joins again
  ncclUniqueId id = {};
  NCCL(ncclCommGetUniqueId(fewer[0].comm, &id));
  more.push_back({&ranks[1], NULL});
  NCCL(ncclGroupStart());
  for (int i = 0; i < world; ++i) {
    const bool joins = i == world - 1;
    CUDA(cudaSetDevice(more[i].rank->device));
    NCCL(ncclCommGrow(joins ? NULL : fewer[i].comm, world, joins || i == 0 ? &id : NULL,
                      joins ? i : -1, &more[i].comm, NULL));
  }
  NCCL(ncclGroupEnd());
  wrong += check_members(more);

  for (const Reshaped& m : more) NCCL(ncclCommRevoke(m.comm, NCCL_REVOKE_DEFAULT));
  wrong += check_members(more, true);
  const std::vector<Reshaped> last = without(more, world - 1, NCCL_SHRINK_ABORT);
  wrong += check_members(last);
  for (const auto& members : {fewer, again, more, last}) destroy(members);
  return wrong;
}

}  // namespace client
