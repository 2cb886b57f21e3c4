// No result file: a rank that loses patience creates a tombstone under the name of each missing
// card. A name can be created only once, so each rank has either a card or a tombstone, and all
// ranks that have seen N files have seen the same ones.
#pragma once

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "labs/kit/nodes/nodes.hpp"

namespace lab00 {

inline std::vector<std::string> meet(kit::Folder& folder, const kit::Seat& seat,
                                     const std::string& card, std::chrono::milliseconds patience) {
  using namespace std::chrono;
  const auto begun = steady_clock::now();
  const auto path = [&](int rank) { return seat.job + "seat" + std::to_string(rank); };
  const bool seated = folder.create(path(seat.rank), "+" + card);
  if (!seated && folder.read(path(seat.rank))->front() == '+')
    throw std::runtime_error("rank " + std::to_string(seat.rank) + " was given twice");
  for (int r = 0; r < seat.world; ++r) {
    const auto left = patience - duration_cast<milliseconds>(steady_clock::now() - begun);
    if (!folder.wait(path(r), left)) folder.create(path(r), "-");
  }
  std::vector<std::string> cards;
  std::string stones;
  for (int r = 0; r < seat.world; ++r) {
    const std::string text = *folder.read(path(r));
    if (text.front() == '-') stones += "rank " + std::to_string(r) + " never came. ";
    cards.push_back(text.substr(1));
  }
  if (!stones.empty()) throw std::runtime_error(stones);
  return cards;
}

}  // namespace lab00
