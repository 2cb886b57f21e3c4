// All ranks poll the folder. The first rank that sees N cards, or runs out of patience, writes one
// list, which all ranks read: the cards, each preceded by its length, or the errors. The lesson
// uses the same method with a store instead of a folder.
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
      for (int r = 0; r < seat.world; ++r) {
        const std::string one = *folder.read(name(r));
        cards += std::to_string(one.size()) + " " + one;
      }
    if (missing.empty() || late) folder.create(list, missing.empty() ? cards : missing);
    if (!missing.empty() && !late) std::this_thread::sleep_for(std::chrono::milliseconds(15));
  }
  const std::string text = *folder.read(list);
  if (!text.starts_with("all\n")) throw std::runtime_error(text);
  std::istringstream stream(text.substr(4));
  std::vector<std::string> cards(static_cast<std::size_t>(seat.world));
  for (std::string& next : cards) {
    std::size_t length = 0;
    stream >> length;
    stream.get();  // the blank
    next.resize(length);
    stream.read(next.data(), std::streamsize(length));
  }
  return cards;
}

}  // namespace lab00
