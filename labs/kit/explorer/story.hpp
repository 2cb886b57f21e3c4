// An execution as text: one line per step, in an order in which every step follows the steps it
// depends on.
//
//      3  producer   tail.store(1, relaxed)
//      4  consumer   tail.load(acquire) -> 1                 step 3's
//      5  consumer   slot 0 is read: 0
#pragma once

#include "labs/kit/explorer/execution.hpp"

namespace explorer {

class Story {
 public:
  void clear() { steps_.clear(); }
  void add(const Event& event, const char* name);
  // For plain memory. Returns a handle for number().
  std::uint32_t touch(std::size_t thread, bool write, const char* name, std::int64_t index,
                      std::size_t bytes, const Value* value);
  [[nodiscard]] std::string memory_of(std::uint32_t step) const;
  [[nodiscard]] std::size_t number(std::uint32_t step) const;  // as printed, from 1
  [[nodiscard]] std::string told(const Execution& execution,
                                 const std::vector<std::string>& threads) const;

 private:
  struct Step {
    std::size_t thread = 0;
    bool plain = false, write = false, hidden = false;
    Id id;                       // unless plain
    const char* name = nullptr;  // of the operation, or of plain memory
    std::int64_t index = -1;     // index in the plain memory
    std::size_t bytes = 0;
    bool shown = false;
    Value value = 0;
  };
  std::vector<Step> steps_;
};

}  // namespace explorer
