// Helpers for both drivers of this lab: run a body on every rank, read rows of numbers.
#pragma once

#include <functional>
#include <stdexcept>

#include "labs/17-beyond/group.hpp"
#include "labs/kit/driver.hpp"

namespace on_ranks {

using lab17::Group;

inline std::string of_rank(const char* what, int rank) {
  return what + ("." + std::to_string(rank));
}

// Runs body(group) on every rank, and reports the traffic.
inline void run(const kit::Request& in, kit::Observation& out,
                const std::function<void(Group&)>& body) {
  kit::Fabric fabric(kit::fabric_options(in));
  Group::Log log;
  try {
    fabric.run([&](kit::Link& link) {
      Group group(fabric, link, log);
      body(group);
    });
  } catch (const lab17::Disagreement& d) {
    throw kit::Misuse{d.message};
  }
  fabric.observe(out);
  std::string calls;
  for (const Group::Call& call : log) calls += call.text + "\n";
  out.put("calls", calls);
}

template <class T, class U>
void append(std::vector<T>& to, const U& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// A sequence of numbers, read piece by piece.
template <class T>
class Tape {
 public:
  explicit Tape(std::vector<T> numbers) : numbers_(std::move(numbers)) {}
  std::vector<T> next(std::int64_t count) {
    const auto first = numbers_.begin() + std::ptrdiff_t(at_);
    at_ += std::size_t(count);
    if (at_ > numbers_.size()) throw std::logic_error("the request has too few numbers");
    return {first, first + std::ptrdiff_t(count)};
  }

 private:
  std::vector<T> numbers_;
  std::size_t at_ = 0;
};

constexpr float kGuard = -12345.0F;  // around buckets, and in gradients before backward

}  // namespace on_ranks
