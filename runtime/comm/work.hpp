// A collective in flight. Operations of a group run in the order of their calls, on the group's
// communication thread; wait() returns when this one is done and rethrows what went wrong in it.
#pragma once

#include <memory>

namespace ringsmith::comm {

class Work {
 public:
  virtual ~Work() = default;
  [[nodiscard]] virtual bool is_completed() const = 0;
  virtual void wait() = 0;
};

using WorkPtr = std::shared_ptr<Work>;

}  // namespace ringsmith::comm
