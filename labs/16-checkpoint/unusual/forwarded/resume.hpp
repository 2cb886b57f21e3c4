// Unusual and correct: all data moves from rank to rank. Generators are collected on the way down
// to rank 0, and the snapshot is passed up. Every rank carries the generators of all ranks that
// ever existed.
#pragma once

#include <cstdint>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>

#include "checkpoint.hpp"
#include "labs/16-checkpoint/training.hpp"
#include "labs/kit/link.hpp"
#include "labs/kit/todo.hpp"

namespace lab16 {

inline void put(kit::Link& link, int to, const Bytes& bytes) {
  const std::int64_t size = std::int64_t(bytes.size());
  link.send(to, std::span(&size, 1));
  link.send(to, std::span(bytes));
}
inline Bytes get(kit::Link& link, int from) {
  std::int64_t size = 0;
  link.recv(from, std::span(&size, 1));
  Bytes bytes(std::size_t(size), std::byte{0});
  link.recv(from, std::span(bytes));
  return bytes;
}
inline Bytes pass_up(kit::Link& link, Bytes bytes) {
  if (link.rank() > 0) bytes = get(link, link.rank() - 1);
  if (link.rank() + 1 < link.world()) put(link, link.rank() + 1, bytes);
  return bytes;
}

inline void save(kit::Link& link, const Training& training, Checkpoints* checkpoints) {
  Snapshot part;
  if (link.rank() + 1 < link.world()) part = unpack(get(link, link.rank() + 1));
  std::ostringstream mine;
  mine << training.generator;
  part.texts[std::to_string(link.rank())] = mine.str();
  if (link.rank() > 0) put(link, link.rank() - 1, pack(part));
  Snapshot verdict;
  if (link.rank() == 0) {
    for (const auto& [rank, generator] : training.carried)
      part.texts.try_emplace(std::to_string(rank), generator);
    part.step = training.step;
    part.floats["p"] = training.parameters;
    part.floats["m"] = training.momentum;
    part.floats["l"] = {training.average_loss};
    part.texts["place"] = std::to_string(training.epoch) + " " + std::to_string(training.used);
    try {
      checkpoints->save(part);
    } catch (const std::runtime_error& e) {
      verdict.texts["error"] = e.what();
    }
  }
  verdict = unpack(pass_up(link, pack(verdict)));
  if (verdict.texts.contains("error")) throw std::runtime_error(verdict.texts["error"]);
}

inline bool resume(kit::Link& link, Training& training, Checkpoints* checkpoints) {
  Bytes bytes;
  if (link.rank() == 0) {
    const auto found = checkpoints->load_newest();
    if (found) bytes = pack(*found);
  }
  bytes = pass_up(link, bytes);
  if (bytes.empty()) return false;
  Snapshot all = unpack(bytes);
  if (all.floats["p"].size() != training.parameters.size())
    throw std::runtime_error("a checkpoint of another model");
  std::istringstream place(all.texts["place"]);
  std::int64_t epoch = 0, used = 0;
  place >> epoch >> used;
  training.begin_epoch(epoch);
  training.used = used;
  training.step = all.step;
  training.parameters = all.floats["p"];
  training.momentum = all.floats["m"];
  training.average_loss = all.floats["l"][0];
  for (const auto& [name, text] : all.texts)
    if (name != "place") training.carried[std::stoi(name)] = text;
  const std::string own = std::to_string(link.rank());
  if (all.texts.contains(own)) std::istringstream(all.texts[own]) >> training.generator;
  return true;
}

}  // namespace lab16
