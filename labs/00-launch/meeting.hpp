// Lab 00, part 2: a rendezvous. Processes that know a folder, but not each other, meet.
//
//     rank 1 arrives   writes its card      waits for 0 and 2 ...
//     rank 0 arrives   writes its card      waits for 2 ...
//     deadline                              "rank 2 never came", in both
//     rank 2 arrives   too late             the same error: the others have left
//
// Either all ranks get all cards, or all get the same error.
#pragma once

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "labs/kit/nodes/nodes.hpp"
#include "labs/kit/todo.hpp"

namespace lab00 {

// Task 3. Every rank of the job calls meet with a card, any text for the others. Returns the cards
// of all ranks, in rank order.
//
// Waits for at most `patience` in total. Throws std::runtime_error, with "rank R never came" for
// each rank whose card is still missing, or with "rank R was given twice" if another process has
// already called meet with this rank.
inline std::vector<std::string> meet(kit::Folder& folder, const kit::Seat& seat,
                                     const std::string& card, std::chrono::milliseconds patience) {
#ifdef SOLUTION
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + patience;  // one for all waits
  const auto left = [&] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  };
  const auto card_of = [&](int rank) { return seat.job + "card." + std::to_string(rank); };

  if (!folder.create(card_of(seat.rank), card))
    throw std::runtime_error("rank " + std::to_string(seat.rank) + " was given twice: to " +
                             folder.read(card_of(seat.rank)).value_or("?") + " and to " + card);
  std::string missing;
  for (int r = 0; r < seat.world; ++r)
    if (!folder.wait(card_of(r), left()))
      missing += (missing.empty() ? "" : "; ") + ("rank " + std::to_string(r) + " never came");

  // One rank may run out of patience just when the last card arrives. Therefore the first rank to
  // decide writes its result, which holds for all ranks.
  const std::string result = seat.job + "result";
  folder.create(result, missing);
  missing = folder.read(result).value();
  if (!missing.empty()) throw std::runtime_error(missing);

  std::vector<std::string> cards;
  for (int r = 0; r < seat.world; ++r) cards.push_back(folder.read(card_of(r)).value());
  return cards;
#else
  (void)folder, (void)seat, (void)card, (void)patience;
  kit::todo("task 3, meet");
#endif
}

}  // namespace lab00
