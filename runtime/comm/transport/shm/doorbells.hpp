// Doorbells: how local ranks wake one that sleeps on its sockets. Who has remote peers cannot sleep
// on a futex; Host::ring() sends a byte over the Unix socket of the mesh instead.
#pragma once

#include <poll.h>
#include <vector>

namespace ringsmith::comm {

class Doorbells {
 public:
  // One socket of each local peer; owned by the mesh.
  explicit Doorbells(std::vector<int> sockets) : sockets_(std::move(sockets)) {}

  // Appends what poll() is to watch.
  void watch(std::vector<pollfd>& entries) const;
  // Takes the bytes of those that rang. A peer that has gone rings no more: others look for that.
  // `entries`: those that watch() appended, at the end.
  void silence(const std::vector<pollfd>& entries);

 private:
  std::vector<int> sockets_;
};

}  // namespace ringsmith::comm
