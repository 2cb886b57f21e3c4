// Helpers for both drivers of this lab: run a body on every rank, read rows of numbers.
#pragma once

#include <functional>
#include <set>
#include <stdexcept>

#include "labs/17-beyond/group.hpp"
#include "labs/kit/driver.hpp"
#include "labs/kit/fabric/fabric.hpp"

namespace on_ranks {

using lab17::Group;

inline std::string of_rank(const char* what, int rank) {
  return what + ("." + std::to_string(rank));
}

// The collectives of a run, in the order of the calls. All ranks share a log.
struct Log {
  struct Call {
    std::string text;
    int rank = 0;  // the first rank that called it
  };
  std::vector<Call> calls;
  std::set<std::string> kinds;  // the fabric keeps pointers to their texts

  // A rank's call with this number; throws if it is not that of the ranks before it.
  void note(std::size_t number, const std::string& text, int rank) {
    if (number == calls.size()) calls.push_back({text, rank});
    if (calls[number].text != text)
      throw lab17::Disagreement{
          "collective #" + std::to_string(number) + ": rank " + std::to_string(rank) + " calls " +
          text + ", rank " + std::to_string(calls[number].rank) + " calls " + calls[number].text};
  }
};

// A rank on the kit's fabric, which counts its bytes.
class OnFabric : public lab17::Network {
 public:
  OnFabric(kit::Fabric& fabric, kit::Link& link, Log& log)
      : fabric_(fabric), link_(link), log_(log) {}
  [[nodiscard]] int rank() const override { return link_.rank(); }
  [[nodiscard]] int world() const override { return link_.world(); }

  void enter(const std::string& kind, const lab17::Counts& counts, std::size_t element) override {
    fabric_.begin(rank(), log_.kinds.insert(kind).first->c_str());
    log_.note(next_++, lab17::text_of(kind, counts, element), rank());
  }
  void exchange(const Out& out, const In& in, std::size_t element) override {
    for (int d = 1; d < world(); ++d) {
      const int to = (rank() + d) % world(), from = (rank() + world() - d) % world();
      of_width(element, [&]<class T>(T) {
        link_.exchange(to, as<const T>(out[std::size_t(to)]), from, as<T>(in[std::size_t(from)]));
      });
    }
  }
  void spread(int root, std::span<std::byte> data, std::size_t element) override {
    of_width(element, [&]<class T>(T) {
      if (rank() != root) return link_.recv(root, as<T>(data));
      for (int to = 0; to < world(); ++to)
        if (to != root) link_.send(to, as<const T>(data));
    });
  }

 private:
  // The fabric names elements in its reports, not bytes.
  template <class Body>
  static void of_width(std::size_t element, Body body) {
    switch (element) {
      case 2:
        return body(std::uint16_t{});
      case 4:
        return body(std::uint32_t{});
      case 8:
        return body(std::uint64_t{});
      default:
        return body(std::byte{});
    }
  }
  template <class T, class Byte>
  static std::span<T> as(std::span<Byte> bytes) {
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

  kit::Fabric& fabric_;
  kit::Link& link_;
  Log& log_;
  std::size_t next_ = 0;
};

// Runs body(group) on every rank, and reports the traffic.
inline void run(const kit::Request& in, kit::Observation& out,
                const std::function<void(Group&)>& body) {
  kit::Fabric fabric(kit::fabric_options(in));
  Log log;
  try {
    fabric.run([&](kit::Link& link) {
      OnFabric network(fabric, link, log);
      Group group(network);
      body(group);
    });
  } catch (const lab17::Disagreement& d) {
    throw kit::Misuse{d.message};
  }
  fabric.observe(out);
  std::string calls;
  for (const Log::Call& call : log.calls) calls += call.text + "\n";
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
