// All ranks poll the folder. The first rank that sees N cards, or runs out of patience, writes the
// cards or the errors to one list, which all ranks read. This is the lesson's method, with a folder
// as the store.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "labs/kit/nodes/nodes.hpp"

namespace lab00 {

inline std::vector<std::string> meet(kit::Folder& folder, const kit::Seat& seat,
                                     const std::string& card, std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  const auto name = [&](int rank) {
    char digits[16];
    std::snprintf(digits, sizeof digits, "%06d", rank);
    return seat.job + "here-" + digits;
  };
  if (!folder.create(name(seat.rank), card))
    throw std::runtime_error("rank " + std::to_string(seat.rank) + " was given twice");
  const std::string list = seat.job + "list";
  while (true) {
    const std::vector<std::string> files = folder.list();
    if (std::find(files.begin(), files.end(), list) != files.end()) break;
    std::string cards = "all\n", missing;
    for (int r = 0; r < seat.world; ++r)
      if (!std::binary_search(files.begin(), files.end(), name(r)))
        missing += "rank " + std::to_string(r) + " never came\n";
    const bool late = std::chrono::steady_clock::now() >= end;
    if (missing.empty())
      for (int r = 0; r < seat.world; ++r) cards += *folder.read(name(r)) + "\n";
    if (missing.empty() || late) folder.create(list, missing.empty() ? cards : missing);
    if (!missing.empty() && !late) std::this_thread::sleep_for(std::chrono::milliseconds(15));
  }
  std::istringstream lines(*folder.read(list));
  std::vector<std::string> cards;
  for (std::string line; std::getline(lines, line);) cards.push_back(line);
  if (cards.front() != "all") throw std::runtime_error(lines.str());
  cards.erase(cards.begin());
  return cards;
}

}  // namespace lab00
