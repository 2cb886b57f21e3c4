// The oracle for the executors: all ranks in one loop, one float per element, unbounded queues, no
// slots, threads or sockets. It sends a message of several chunks as a whole.
#pragma once

#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::comm::testing {

using Buffers = std::vector<std::vector<float>>;  // [rank][element]

inline Buffers wide_range_inputs(int world, std::size_t count) {
  std::mt19937 engine(static_cast<unsigned>(world) * 1000 + static_cast<unsigned>(count));
  std::uniform_real_distribution<float> mantissa(-1.0f, 1.0f);
  std::uniform_int_distribution<int> exponent(-12, 12);
  Buffers inputs(at(world), std::vector<float>(count));
  for (auto& buffer : inputs)
    for (float& value : buffer) value = std::ldexp(mantissa(engine), exponent(engine));
  return inputs;
}

// Runs every rank's steps. Throws if a rank cannot finish.
inline Buffers execute(const Schedule& schedule, const Buffers& inputs) {
  const auto world = static_cast<std::size_t>(schedule.world);
  Buffers work = inputs;
  if (schedule.separate_input)
    for (auto& buffer : work) buffer.assign(schedule.count, -12345.0f);
  std::map<std::pair<int, int>, std::deque<std::vector<float>>> wires;
  std::vector<std::size_t> next(world, 0);
  std::vector<bool> posted(world, false);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < world; ++r) {
      while (next[r] < schedule.steps[r].size()) {
        const Step& step = schedule.steps[r][next[r]];
        const int rank = static_cast<int>(r);
        const auto& source = schedule.separate_input ? inputs[r] : work[r];
        const auto elements = [&](int chunk) {
          const Chunk& first = schedule.chunks.at(static_cast<std::size_t>(chunk));
          const Chunk& last = schedule.chunks.at(static_cast<std::size_t>(chunk + step.chunks - 1));
          return Chunk{first.offset, last.offset + last.count - first.offset};
        };
        const auto part = [&](const std::vector<float>& from, int chunk) {
          const Chunk c = elements(chunk);
          const auto begin = from.begin() + static_cast<std::ptrdiff_t>(c.offset);
          return std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(c.count));
        };
        if (step.sends() && !posted[r])
          wires[{rank, step.send_peer}].push_back(part(source, step.send_chunk));
        posted[r] = true;
        if (step.receives()) {
          auto& wire = wires[{step.recv_peer, rank}];
          if (step.recv_peer == rank) wire.push_back(part(source, step.recv_chunk));
          if (wire.empty()) break;
          const Chunk c = elements(step.recv_chunk);
          for (std::size_t i = 0; i < c.count; ++i) {
            float& mine = work[r].at(c.offset + i);
            const float theirs = wire.front().at(i);
            mine = step.action == Action::copy ? theirs : theirs + mine;
          }
          wire.pop_front();
        }
        ++next[r];
        posted[r] = false;
        moved = true;
      }
    }
  }
  for (std::size_t r = 0; r < world; ++r)
    if (next[r] != schedule.steps[r].size()) throw std::runtime_error("a rank waits forever");
  return work;
}

}  // namespace ringsmith::comm::testing
