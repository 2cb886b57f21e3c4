#include "runtime/comm/transport/wait_for_graph.hpp"

#include <algorithm>

#include "runtime/comm/call.hpp"

namespace ringsmith::comm {

namespace {

struct Place {
  Call call;
  std::uint64_t sequence = 0;
  bool busy = false;
  bool stale = false;  // it may be elsewhere by now
  int waits_for = -1;
};

Place look_at(const Sight& sight) {
  const Board& board = *sight.board;
  Place place;
  if (sight.arrivals != nullptr && board.waits_for.load() < 0) {
    const bool second = sight.arrivals[1].round.load() > sight.arrivals[0].round.load();
    const Arrival& last = sight.arrivals[second ? 1 : 0];
    if (last.round.load() != 0) place.call = Call::unpack(last.call.load(), last.count.load());
    place.sequence = last.sequence.load();
    place.stale = true;
    return place;
  }
  place.call = Call::unpack(board.call.load(), board.count.load());
  place.sequence = board.sequence.load();
  place.busy = board.busy.load() != 0;
  if (place.busy) place.waits_for = board.waits_for.load();
  return place;
}

std::string describe(const Place& place) {
  if (place.call.op == Op::none) return " has made no call yet";
  std::string text = place.stale  ? " was last heard of in "
                     : place.busy ? " in "
                                  : " computing, last call ";
  text += place.call.describe() + " #" + std::to_string(place.sequence);
  if (place.waits_for >= 0) text += " waits for rank " + std::to_string(place.waits_for);
  return text;
}

// The ranks that one comes to for ever by going from each to whom it waits for; empty if there are
// none.
std::vector<int> find_circle(const std::vector<Place>& places) {
  for (int start = 0; start < static_cast<int>(places.size()); ++start) {
    std::vector<int> path;
    int r = start;
    do {
      path.push_back(r);
      r = places[static_cast<std::size_t>(r)].waits_for;
    } while (r >= 0 && std::find(path.begin(), path.end(), r) == path.end());
    if (r == start) return path;
  }
  return {};
}

}  // namespace

std::string wait_for_graph(const std::vector<Sight>& ranks) {
  std::vector<Place> places;
  for (const Sight& sight : ranks) places.push_back(look_at(sight));
  std::string text = "Where everybody is:";
  for (std::size_t r = 0; r < places.size(); ++r)
    text += (r == 0 ? " rank " : "; rank ") + std::to_string(r) + describe(places[r]);
  const std::vector<int> circle = find_circle(places);
  if (circle.empty()) return text;
  text += ". They wait in a circle: rank " + std::to_string(circle.front());
  for (std::size_t i = 1; i <= circle.size(); ++i)
    text += " for rank " + std::to_string(circle[i % circle.size()]);
  const bool all_send = std::all_of(circle.begin(), circle.end(), [&](int r) {
    return places[static_cast<std::size_t>(r)].call.op == Op::send;
  });
  if (all_send)
    text +=
        ", all in send(): a long message waits for its receiver, so one of them must receive "
        "before it sends";
  return text;
}

}  // namespace ringsmith::comm
