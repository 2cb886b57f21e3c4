// slots: chapter 07's messages through two slots, under every execution; and with one of the four
// orders weakened.
//
//     lesson19_slots               right with all orders, wrong with any one weakened
//     lesson19_slots head_load     the first wrong execution with this one weakened
//     lesson19_slots grow          how the number of executions grows
#include <cstdio>
#include <string>
#include <vector>

#include "labs/kit/explorer/atomic.hpp"

using namespace explorer;

namespace {

constexpr const char* kSlotNames[] = {"slot 0", "slot 1", "slot 2", "slot 3",
                                      "slot 4", "slot 5", "slot 6", "slot 7"};

struct Channel {
  explicit Channel(int slots) {
    for (int i = 0; i < slots; ++i)
      slot.push_back(std::make_unique<plain<int>>(kSlotNames[std::size_t(i)]));
  }
  std::vector<std::unique_ptr<plain<int>>> slot;
  atomic<int> tail{"tail", 0}, head{"head", 0};
  plain<int>& slot_of(int message) { return *slot[std::size_t(message) % slot.size()]; }
};

int message(int m) { return 7 + 13 * m; }

Program hand_off(int messages, int slots) {
  const auto c = std::make_shared<Channel>(slots);
  return {{{"sender",
            [=] {
              for (int m = 0; m < messages; ++m) {
                if (m >= slots) wait_until([&] { return c->head.load(acquire) > m - slots; });
                c->slot_of(m).set(message(m));
                c->tail.store(m + 1, release);
              }
            }},
           {"receiver", [=] {
              for (int m = 0; m < messages; ++m) {
                wait_until([&] { return c->tail.load(acquire) > m; });
                require(c->slot_of(m).get() == message(m), "the receiver takes a wrong message");
                c->head.store(m + 1, release);
              }
            }}}};
}

const struct {
  const char* name;
  Weakening weakened;
} kEnds[] = {{"tail_store", {"tail", Access::store, relaxed}},
             {"tail_load", {"tail", Access::load, relaxed}},
             {"head_store", {"head", Access::store, relaxed}},
             {"head_load", {"head", Access::load, relaxed}}};

Result three(const std::vector<Weakening>& weakened) {
  return explore([] { return hand_off(3, 2); }, {.weakened = weakened});
}

int all_ends() {
  const Result right = three({});
  std::printf("all orders   %s in %llu executions\n",
              right.complete ? "right" : right.failure.c_str(),
              static_cast<unsigned long long>(right.executions));
  for (const auto& end : kEnds)
    std::printf("%-11s  %s\n", end.name, three({end.weakened}).failure.c_str());
  return right.complete ? 0 : 1;
}

void grow() {
  std::printf("messages   2 slots   3 slots   4 slots   8 slots\n");
  for (int messages = 2; messages <= 8; ++messages) {
    std::printf("%8d", messages);
    for (const int slots : {2, 3, 4, 8})
      std::printf("%10llu", static_cast<unsigned long long>(
                                explore([=] { return hand_off(messages, slots); }).executions));
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc == 2 ? argv[1] : "";
  if (argc == 1) return all_ends();
  if (what == "grow") return grow(), 0;
  for (const auto& end : kEnds)
    if (what == end.name) {
      const Result found = three({end.weakened});
      std::printf("%s\n%s", found.failure.c_str(), found.execution.c_str());
      return 0;
    }
  std::fprintf(stderr, "lesson19_slots [grow | tail_store | tail_load | head_store | head_load]\n");
  return 6;
}
