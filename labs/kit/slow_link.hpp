// A link with a delay: it wraps a much faster link, and sleeps so that every call takes at least
// alpha seconds plus beta seconds per byte of real time, even on a busy machine.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <thread>

namespace kit {

template <class Link>
class SlowLink {
 public:
  SlowLink(Link& link, double alpha, double beta) : link_(link), alpha_(alpha), beta_(beta) {}
  [[nodiscard]] int rank() const { return link_.rank(); }
  [[nodiscard]] int world() const { return link_.world(); }
  [[nodiscard]] std::size_t messages() const { return messages_; }

  template <class T>
  void send(int to, std::span<T> data) {
    const auto end = end_of(data.size_bytes());
    link_.send(to, data);
    std::this_thread::sleep_until(end);
  }
  template <class T>
  void recv(int from, std::span<T> data) {
    const auto end = end_of(data.size_bytes());
    link_.recv(from, data);
    std::this_thread::sleep_until(end);
  }
  template <class T, class U>
  void exchange(int to, std::span<T> out, int from, std::span<U> in) {
    const auto end = end_of(std::max(out.size_bytes(), in.size_bytes()));
    link_.exchange(to, out, from, in);
    std::this_thread::sleep_until(end);
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point end_of(std::size_t bytes) {
    ++messages_;
    const std::chrono::duration<double> takes(alpha_ + beta_ * double(bytes));
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(takes);
  }

  Link& link_;
  double alpha_, beta_;
  std::size_t messages_ = 0;
};

}  // namespace kit
