// One operation on device memory: its place between the caller's stream and the group's.
//
//     caller's stream   ... ready ...........................  wait(done) ...
//     group's stream        wait(ready) [the collective] done
#pragma once

#include <cstdint>
#include <string>

#include "runtime/device/stream.hpp"

namespace ringsmith::comm::cuda_ipc {

class Operation {
 public:
  explicit Operation(Event ready) : ready_(std::move(ready)) {}

  // The data is there: what the caller's stream held at the time of the call has been done.
  [[nodiscard]] const Event& ready() const { return ready_; }

  // To be called once, when everything has been put on the group's stream.
  void launched(std::uint64_t number, std::string call, std::uint64_t sequence,
                const Stream& stream) {
    number_ = number;
    call_ = std::move(call);
    sequence_ = static_cast<std::int64_t>(sequence);
    done_ = Event::record(stream);
  }
  // After launched():
  [[nodiscard]] const Event& done() const { return done_; }
  [[nodiscard]] std::uint64_t number() const { return number_; }  // in the group's stream, from 1
  [[nodiscard]] const std::string& call() const { return call_; }
  [[nodiscard]] std::int64_t sequence() const { return sequence_; }

 private:
  Event ready_, done_;
  std::uint64_t number_ = 0;
  std::string call_;
  std::int64_t sequence_ = -1;
};

}  // namespace ringsmith::comm::cuda_ipc
