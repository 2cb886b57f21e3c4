// Lab 16, part 2: continuing the same run after a stop.
//
//   rank 0   g0 ----+                         +--> g0, and the state that all ranks share
//   rank 1   g1 ----+--> one snapshot --> disk --> g1
//   rank 2   g2 ----+      of all ranks       +--> g2; without a rank 2, it stays in the snapshot
//
// Read training.hpp first: which state does the next step depend on?
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

#ifdef SOLUTION
// Sends a text whose length the receiver does not know.
inline void send_text(kit::Link& link, int to, const std::string& text) {
  const std::vector<std::int64_t> size{std::int64_t(text.size())};
  link.send(to, std::span(size));
  link.send(to, std::span(text));
}
inline std::string recv_text(kit::Link& link, int from) {
  std::vector<std::int64_t> size(1);
  link.recv(from, std::span(size));
  std::string text(std::size_t(size[0]), '\0');
  link.recv(from, std::span(text));
  return text;
}
// Broadcasts rank 0's text.
inline std::string from_rank_0(kit::Link& link, std::string text) {
  if (link.rank() > 0) return recv_text(link, 0);
  for (int r = 1; r < link.world(); ++r) send_text(link, r, text);
  return text;
}
#endif

// Task 4. Called by all ranks after the same step. `checkpoints` is null except on rank 0, the only
// rank with a disk. Saves the state of all ranks that resume() needs. If that fails on rank 0,
// every rank throws std::runtime_error, and training can continue as if save() had not been called.
inline void save(kit::Link& link, const Training& training, Checkpoints* checkpoints) {
#ifdef SOLUTION
  std::ostringstream mine;
  mine << training.generator;
  std::string error;
  if (link.rank() > 0) {
    send_text(link, 0, mine.str());
  } else {
    Snapshot all{
        training.step,
        {{"parameters", training.parameters},
         {"momentum", training.momentum},
         {"average_loss", {training.average_loss}}},
        {{"epoch", std::to_string(training.epoch)}, {"used", std::to_string(training.used)}}};
    for (const auto& [rank, generator] : training.carried)
      all.texts["generator." + std::to_string(rank)] = generator;
    all.texts["generator.0"] = mine.str();
    for (int r = 1; r < link.world(); ++r)
      all.texts["generator." + std::to_string(r)] = recv_text(link, r);
    try {
      checkpoints->save(all);
    } catch (const std::exception& e) {
      error = std::string("no checkpoint: ") + e.what();
    }
  }
  error = from_rank_0(link, error);
  if (!error.empty()) throw std::runtime_error(error);
#else
  (void)link, (void)training, (void)checkpoints;
  kit::todo("task 4, save");
#endif
}

// Task 4. Called by all ranks, with a newly constructed training. Restores the newest usable
// checkpoint, so that every later step is bitwise equal to the run without the stop. Returns false,
// and leaves the training unchanged, if there is none. If the checkpoint's model has a different
// number of parameters, every rank throws std::runtime_error, and the training is unchanged.
// Task 5. The number of ranks may differ from the run that saved. Rank r continues the generator of
// the last rank r, if there ever was one, however many saves ago; a new rank starts with its own
// generator. No noise is ever drawn twice.
inline bool resume(kit::Link& link, Training& training, Checkpoints* checkpoints) {
#ifdef SOLUTION
  std::string packed;
  if (link.rank() == 0)
    if (const auto found = checkpoints->load_newest()) {
      const Bytes bytes = pack(*found);
      packed.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
  packed = from_rank_0(link, packed);
  if (packed.empty()) return false;
  const Snapshot all = unpack(std::as_bytes(std::span(packed)));
  const auto& parameters = all.floats.at("parameters");
  if (parameters.size() != training.parameters.size())
    throw std::runtime_error("the checkpoint has " + std::to_string(parameters.size()) +
                             " parameters, the model " +
                             std::to_string(training.parameters.size()));
  training.step = all.step;
  training.parameters = parameters;
  training.momentum = all.floats.at("momentum");
  training.average_loss = all.floats.at("average_loss").at(0);
  training.begin_epoch(std::stoll(all.texts.at("epoch")));
  training.used = std::stoll(all.texts.at("used"));
  training.carried.clear();
  for (const auto& [name, text] : all.texts)
    if (name.starts_with("generator.")) training.carried[std::stoi(name.substr(10))] = text;
  const auto mine = training.carried.find(link.rank());
  if (mine != training.carried.end()) std::istringstream(mine->second) >> training.generator;
  return true;
#else
  (void)link, (void)training, (void)checkpoints;
  kit::todo("task 4, resume");
#endif
}

}  // namespace lab16
