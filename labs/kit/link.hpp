// The operations of a rank in the simulated network: send, receive, or both simultaneously.
//
// All three block. With capacity 0 nothing is buffered, so a send ends only when the peer receives.
// Real networks buffer a little, so a program in which all ranks send first works until its
// messages grow. Here such a program stops immediately, with a report of which rank waits for
// which.
//
// Sizes are counted in elements.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

namespace kit {

class Fabric;

class Link {
 public:
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int world() const { return world_; }

  // Both sides must specify the same number of elements. Messages between two ranks arrive in
  // order.
  template <class T>
  void send(int to, std::span<T> data) {
    call(to, data.data(), data.size(), -1, nullptr, 0, sizeof(T));
  }
  template <class T>
  void recv(int from, std::span<T> data) {
    static_assert(!std::is_const_v<T>);
    call(-1, nullptr, 0, from, data.data(), data.size(), sizeof(T));
  }
  // Sends and receives simultaneously, and returns when both are complete. out and in must not
  // overlap.
  template <class T, class U>
  void exchange(int to, std::span<T> out, int from, std::span<U> in) {
    static_assert(std::is_same_v<std::remove_const_t<T>, U>);
    call(to, out.data(), out.size(), from, in.data(), in.size(), sizeof(U));
  }

 private:
  friend class Fabric;
  Link(Fabric& fabric, int rank, int world) : fabric_(fabric), rank_(rank), world_(world) {}
  void call(int to, const void* out, std::size_t out_count, int from, void* in,
            std::size_t in_count, std::size_t element);

  Fabric& fabric_;
  int rank_;
  int world_;
};

}  // namespace kit
