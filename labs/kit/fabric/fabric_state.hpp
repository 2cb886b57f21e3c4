// Internal to fabric.cpp: the state of each rank and each wire, and how messages move.
#pragma once

#include <deque>
#include <exception>
#include <random>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "labs/kit/fabric/fabric.hpp"
#include "labs/kit/waits.hpp"

namespace kit {

struct Unwind {};  // thrown into the ranks of an abandoned run

// The send or the receive of a call.
struct Half {
  int peer = -1;
  const std::byte* out = nullptr;
  std::byte* in = nullptr;
  std::size_t count = 0;    // elements
  std::size_t element = 0;  // bytes
  double posted = 0;
  double finished = 0;
  bool done = true;
};

struct Buffered {
  std::vector<std::byte> bytes;
  std::size_t count;
  double arrives;
};

// The messages in flight from one rank to another.
struct Pair {
  Half* send = nullptr;  // at most one, because a sending rank is blocked
  Half* recv = nullptr;
  std::deque<Buffered> buffer;
  int messages = 0;
};

struct Rank {
  std::thread thread;
  std::binary_semaphore wake{0};
  enum { ready, blocked, done } state = ready;
  double clock = 0, out_free = 0, in_free = 0;
  Half sending, receiving;
  const char* operation = "";
  int sequence = -1, step = -1, calls = 0;
  std::int64_t sent_bytes = 0, received_bytes = 0, messages = 0;
  std::vector<std::int64_t> from;
  std::exception_ptr failure;
};

struct Fabric::State {
  explicit State(const FabricOptions& given) : options(given), random(given.seed) {}
  FabricOptions options;
  std::mt19937_64 random;
  std::vector<Rank> ranks{std::size_t(options.world)};
  std::vector<Pair> pairs{std::size_t(options.world * options.world)};
  std::binary_semaphore conductor{0};
  bool unwinding = false;
  std::string misuse;

  Pair& pair(int from, int to) { return pairs[std::size_t(from * options.world + to)]; }
  Rank& at(int rank) { return ranks[std::size_t(rank)]; }
  double drawn() { return double(random() >> 11) * 0x1p-53; }
  double delay(std::size_t bytes) {
    return options.alpha + options.beta * double(bytes) + options.jitter * drawn();
  }
  void finish(int rank, Half& half, double time);
  void advance(int from, int to);
  bool mismatch(int from, int to, std::size_t sent, std::size_t expected);
  void resume(Rank& rank);
  void fail_if_stuck(bool any_ready);
  [[nodiscard]] std::vector<Wait> waits();
};

}  // namespace kit
