// The device memory of a captured graph (graph.hpp), from the caching allocator (memory.hpp).
//
// Each launch of the graph uses the addresses of the capture, so no other request may get these
// blocks while the graph exists:
//
//   in the capture   a = allocate ... free(a)  b = allocate      the same block: work has an order
//   before it        c = allocate, in it free(c)                 the graph keeps c, and may read it
//   after it         free(b) ... d = allocate                    another block, although b is free
//
// The capture takes the stream's free blocks first, which are those of the eager steps before it,
// and asks the driver only for the rest.
#pragma once

#include <cstdint>

#include "runtime/base/units.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith::device_allocator {

class GraphMemory {
 public:
  explicit GraphMemory(const Stream& stream);
  ~GraphMemory();  // its free blocks become the stream's, and the others when they are freed
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  [[nodiscard]] Bytes reserved() const;  // by all blocks that it keeps

  // The calling thread's requests on the device belong to the graph until the end of the scope.
  class Capture {
   public:
    explicit Capture(const GraphMemory& memory);
    ~Capture();
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
  };

 private:
  Stream stream_;
  std::uint64_t id_ = 0;
};

}  // namespace ringsmith::device_allocator
