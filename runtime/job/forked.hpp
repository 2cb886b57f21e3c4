// Ranks that one process forks meet in shared memory that the process mapped before forking.
//
//     parent:  ForkedMeeting meeting(3);   fork     fork     fork
//                     |                     |        |        |
//        [ records of rank 0 | of rank 1 | of rank 2 ]   join(0), join(1), join(2)
//
// This needs no port, folder or secret, because no other process can access the memory. If a rank
// dies, the parent terminates the others (launch/spawn.hpp).
#pragma once

#include <chrono>
#include <memory>

#include "runtime/comm/types/bootstrap.hpp"

namespace ringsmith::comm {

class ForkedMeeting {
 public:
  explicit ForkedMeeting(int ranks);  // in the parent; throws Error if memory is exhausted
  ~ForkedMeeting();
  ForkedMeeting(const ForkedMeeting&) = delete;
  ForkedMeeting& operator=(const ForkedMeeting&) = delete;

  // Call once, in the child that is this rank. The result uses this object's memory; its all_gather
  // throws TimeoutError naming the missing ranks.
  [[nodiscard]] std::shared_ptr<Bootstrap> join(int rank, std::chrono::milliseconds timeout) const;

  struct Seat;

 private:
  int ranks_;
  Seat* seats_;  // by rank; in shared memory
};

}  // namespace ringsmith::comm
