// A collective in flight. Operations of a group run in the order of their calls, on the group's
// communication thread; wait() returns when this one is done and rethrows what went wrong in it.
// On device memory "done" is a matter of streams: see runtime/comm/process_group.hpp.
#pragma once

#include <memory>

namespace ringsmith::comm {

class Work {
 public:
  virtual ~Work() = default;
  [[nodiscard]] virtual bool is_completed() const = 0;
  // Later work of this thread (on its current stream, where the buffers are on a device) sees the
  // result.
  virtual void wait() = 0;
  // The host itself sees the result.
  virtual void host_wait() { wait(); }
};

using WorkPtr = std::shared_ptr<Work>;

}  // namespace ringsmith::comm
